"""Bring the translation catalogues up to date with the code, and compile them; `--check` only says what is wrong.

A text's catalogue entry names the files that use it, without line numbers, and entries stand in alphabetical order,
so that moving code changes nothing. A text that the code no longer has leaves the catalogue.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from string import Formatter

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_file
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("app.py", "pages", "ui", "charts", "inference")
KEYWORDS = {"_": None, "t": None, "N_": None, "translate": None}
LANGUAGES = ("zh_Hans", "zh_Hant")
HEADER = """\
# The texts of Inferoscope. Translations are written here by hand; scripts/translations.py keeps the list of texts.
msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""
# What reads the same in every language; any other translation that equals its original counts as missing.
SAME = frozenset({"Emoji", "Min-p", "Top-k", "Top-p", "exp({value} ÷ {n})", "logits", "{value} nats"})

Texts = Mapping[str, Iterable[str]]


def extract(root: Path = ROOT) -> dict[str, list[str]]:
    """Every text that the code marks for translation, and the files that it stands in."""
    found: dict[str, set[str]] = defaultdict(set)
    for source in SOURCES:
        path = root / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for text in _texts(file):
                found[text].add(file.relative_to(root).as_posix())
    return {text: sorted(found[text]) for text in sorted(found)}


def _texts(file: Path) -> list[str]:
    """The texts of one file. Babel warns of every f-string inside a call, also where it is a value to fill in."""
    with contextlib.redirect_stderr(io.StringIO()):
        found = [row[1] for row in extract_from_file("python", file, keywords=KEYWORDS)]
    return [text for text in found if isinstance(text, str) and text]


def po_file(language: str, root: Path = ROOT) -> Path:
    """Where the catalogue of a language lies; the compiled one lies beside it."""
    return root / "assets" / "locale" / language / "LC_MESSAGES" / "inferoscope.po"


def read(path: Path) -> Catalog:
    """A `.po` file as a catalogue; an empty one where there is no file yet."""
    if not path.exists():
        return Catalog()
    with path.open("rb") as file:
        return read_po(file, abort_invalid=True)


def update(texts: Texts, old: Catalog, language: str) -> Catalog:
    """The catalogue of the texts, each with its old translation or none."""
    new = Catalog(locale=language)
    for text, files in texts.items():
        message = old.get(text)
        flags = {"fuzzy"} if message is not None and message.fuzzy else ()
        new.add(text, message.string if message is not None else "", [(file, None) for file in files], flags=flags)
    return new


def po_bytes(catalogue: Catalog, language: str) -> bytes:
    """A catalogue as the text of a `.po` file."""
    buffer = io.BytesIO()
    write_po(buffer, catalogue, width=0, omit_header=True, sort_output=True, include_lineno=False)
    return (HEADER.format(language=language)).encode() + buffer.getvalue()


def translations(catalogue: Catalog) -> dict[str, str]:
    """Text to translation, without those that are empty or fuzzy, which a compiled catalogue leaves out."""
    return {m.id: m.string for m in catalogue if m.id and m.string and not m.fuzzy}


def fields(text: str) -> set[tuple[str, str, str | None]]:
    """The `{fields}` of a text: name, format and conversion. ValueError where a brace stands alone."""
    return {(name, spec or "", conversion) for _, name, spec, conversion in Formatter().parse(text) if name is not None}


def problems_of(texts: Texts, catalogue: Catalog) -> Iterator[str]:
    """One line for each text that a catalogue lacks, has in excess, or translates wrongly."""
    known = {message.id: message for message in catalogue if message.id}
    for text in texts:
        if text not in known:
            yield f"missing: {text!r}"
    for text, message in known.items():
        if text not in texts:
            yield f"no longer used: {text!r}"
        elif message.fuzzy:
            yield f"fuzzy: {text!r}"
        elif not message.string or (message.string == text and text not in SAME):
            yield f"not translated: {text!r}"
        elif _fields_differ(text, message.string):
            yield f"other fields than its original: {text!r} → {message.string!r}"


def _fields_differ(text: str, translation: str) -> bool:
    try:
        return fields(text) != fields(translation) or text.count("<br>") != translation.count("<br>")
    except ValueError:
        return True


def problems(root: Path = ROOT) -> list[str]:
    """Everything that is wrong with the catalogues, one line each; empty when all is well."""
    texts, found = extract(root), []
    for language in LANGUAGES:
        path = po_file(language, root)
        catalogue = read(path)
        found += [f"{language}: {problem}" for problem in problems_of(texts, catalogue)]
        if compiled(path.with_suffix(".mo")) != translations(catalogue):
            found.append(f"{language}: the .mo file is not what its .po file says")
    return found


def compiled(path: Path) -> dict[str, str]:
    """Text to translation, as a `.mo` file has it; empty where there is no file."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        return translations(read_mo(file))


def write(root: Path = ROOT) -> None:
    """Bring both catalogues up to date and compile them; a file whose content stays is not touched."""
    texts = extract(root)
    for language in LANGUAGES:
        path = po_file(language, root)
        catalogue = update(texts, read(path), language)
        content = po_bytes(catalogue, language)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
        if compiled(path.with_suffix(".mo")) != translations(catalogue):
            with path.with_suffix(".mo").open("wb") as file:
                write_mo(file, catalogue)


def main() -> None:
    """Update and compile unless `--check` is given; leave with the list of what is wrong, if anything is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        write()
    found = problems()
    if found:
        sys.exit("\n".join([*found, f"{len(found)} problems; the catalogues are {po_file('<language>')}"]))


if __name__ == "__main__":
    main()
