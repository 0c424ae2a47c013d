"""The translations: every text of the code is in both catalogues, with its fields, and compiled."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog

from inference.errors import Note, RequestError
from scripts.translations import (
    LANGUAGES,
    ROOT,
    SAME,
    SOURCES,
    compiled,
    extract,
    fields,
    po_file,
    problems,
    problems_of,
    read,
    translations,
    write,
)
from ui.i18n import LANGUAGES as OFFERED
from ui.i18n import catalogue, error_text, nearest, note_text, translate

MARKS = {"_", "t", "N_", "translate"}
FILES = sorted(p for s in SOURCES for p in ([ROOT / s] if s.endswith(".py") else (ROOT / s).rglob("*.py")))

# text, 简体中文, 繁體中文: the terms of the two vocabularies, which differ in more than their characters
TERMS = (
    ("prefill", "预填充", "預填充"),
    ("decode", "解码", "解碼"),
    ("KV cache", "键值缓存", "鍵值快取"),
    ("Token", "词元", "詞元"),
    ("Entropy", "熵", "熵"),
    ("Temperature", "温度", "溫度"),
    ("Probability", "概率", "機率"),
    ("default", "默认", "預設"),
    ("checkpoint", "检查点", "檢查點"),
    ("template", "模板", "範本"),
    ("Seed", "种子", "種子"),
    ("Prompt", "提示词", "提示詞"),
    ("Run", "运行", "執行"),
    ("Layer", "层", "層"),
    ("user", "用户", "使用者"),
    ("bytes", "字节", "位元組"),
    ("Settings", "设置", "設定"),
    ("Code", "代码", "程式碼"),
)
# parts of longer texts that a conversion of the characters alone would leave in the Traditional catalogue
MAINLAND = (
    "文件", "默認", "內存", "緩存", "服務器", "程序", "網絡", "加載", "概率", "用戶", "字節", "字符", "代碼",
    "設置", "採樣", "鏈接", "保存", "支持", "打開", "模板", "導出", "信息", "隊列", "運行", "函數", "掩碼",
)  # fmt: skip


def literals(node: ast.expr) -> Iterator[str]:
    """The texts that an argument can be; an f-string is no text that a catalogue can hold."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.JoinedStr):
        yield ast.unparse(node)


def marked() -> dict[str, str]:
    """Every literal that is given to a marking function, and where; read from the syntax tree, not by Babel."""
    found = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS and node.args:
                found |= dict.fromkeys(literals(node.args[0]), f"{path.relative_to(ROOT)}:{node.lineno}")
    return {text: place for text, place in found.items() if text}


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    """A language that has a catalogue, named as its folder."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def known(language: str) -> Catalog:
    """The catalogue of a language, from its `.po` file."""
    return read(po_file(language))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources and catalogues in a folder where they can be spoiled."""
    for source in SOURCES:
        path = ROOT / source
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / source)
    shutil.copytree(ROOT / "assets" / "locale", tmp_path / "assets" / "locale")
    return tmp_path


def spoil(root: Path, before: str, after: str, language: str = "zh_Hans") -> None:
    """Replace one place of a copied catalogue."""
    path = po_file(language, root)
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1
    path.write_text(content.replace(before, after), encoding="utf-8")


def test_the_catalogues_are_complete_and_compiled() -> None:
    assert problems() == []


def test_every_marked_literal_of_the_code_is_in_both_catalogues(known: Catalog) -> None:
    missing = {text: place for text, place in marked().items() if not known.get(text)}
    assert not missing


def test_reading_the_syntax_tree_finds_the_same_texts_as_babel() -> None:
    assert set(marked()) == set(extract())


def test_no_translation_is_empty_or_equal_to_its_original_except_those_named(known: Catalog) -> None:
    untranslated = {m.id for m in known if m.id and m.string in ("", m.id)}
    assert untranslated <= SAME


def test_translations_have_the_fields_of_their_originals(known: Catalog) -> None:
    differing = [m.id for m in known if m.id and fields(m.id) != fields(m.string)]
    assert not differing


def test_a_compiled_catalogue_says_what_its_po_file_says(language: str, known: Catalog) -> None:
    assert compiled(po_file(language).with_suffix(".mo")) == translations(known)


@pytest.mark.parametrize(("text", "simplified", "traditional"), TERMS, ids=[term[0] for term in TERMS])
def test_the_app_shows_the_usual_term(text: str, simplified: str, traditional: str) -> None:
    assert catalogue("zh-Hans").gettext(text) == simplified
    assert catalogue("zh-Hant").gettext(text) == traditional


def test_the_traditional_catalogue_uses_the_terms_of_taiwan() -> None:
    found = {(word, m.id) for m in read(po_file("zh_Hant")) if m.id for word in MAINLAND if word in m.string}
    assert not found


def test_the_two_chinese_catalogues_do_not_mix_their_characters() -> None:
    simplified = "".join(translations(read(po_file("zh_Hans"))).values())
    traditional = "".join(translations(read(po_file("zh_Hant"))).values())
    assert not set("詞機對開關這個請沒與應讀寫圖設為無") & set(simplified)
    assert not set("词机对开关这个请没与应读写图设为无") & set(traditional)


@pytest.mark.parametrize(
    ("tag", "offered"),
    [
        ("zh-TW", "zh-Hant"),
        ("zh-HK", "zh-Hant"),
        ("zh-MO", "zh-Hant"),
        ("zh-Hant", "zh-Hant"),
        ("zh-Hant-TW", "zh-Hant"),
        ("zh-Hant-HK", "zh-Hant"),
        ("zh_TW", "zh-Hant"),
        ("zh", "zh-Hans"),
        ("zh-CN", "zh-Hans"),
        ("zh-SG", "zh-Hans"),
        ("zh-Hans-CN", "zh-Hans"),
        ("en", "en"),
        ("en-GB", "en"),
        ("de-DE", "en"),
        ("ja", "en"),
        ("", "en"),
    ],
)
def test_a_browser_gets_the_nearest_language(tag: str, offered: str) -> None:
    assert nearest(tag) == offered


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        ("en", "This server does not run x. Choose one of a, b."),
        ("zh-Hans", "本服务器不运行 x。请从 a、b 中选择。"),
        ("zh-Hant", "這台伺服器不執行 x。請從 a、b 中選擇。"),
    ],
)
def test_the_words_of_a_list_are_joined_as_the_language_does(
    monkeypatch: pytest.MonkeyPatch, offered: str, said: str
) -> None:
    monkeypatch.setattr("ui.i18n.language", lambda: offered)
    what, remedy, words = "This server does not run {name}.", "Choose one of {allowed}.", ("a", "b")
    error = RequestError(what, remedy, name="x", allowed=words)
    assert str(error) == "This server does not run x. Choose one of a, b."
    assert error_text(error) == said
    assert said.endswith(note_text(Note(remedy, {"allowed": words})))
    assert said.endswith(translate(remedy, allowed=words))
    assert (translate(""), note_text(Note(""))) == ("", "")  # not the catalogue's header


def test_every_language_on_offer_has_a_catalogue() -> None:
    assert {name.replace("-", "_") for name in OFFERED} == {*LANGUAGES, "en"}


def test_an_untouched_copy_has_no_problems(copy: Path) -> None:
    assert problems(copy) == []


def test_a_new_text_in_the_code_is_reported_for_both_languages(copy: Path) -> None:
    page = copy / "pages" / "playback.py"
    page.write_text(page.read_text(encoding="utf-8") + '\n_("Nobody has translated this.")\n', encoding="utf-8")
    assert problems(copy) == [f"{name}: missing: 'Nobody has translated this.'" for name in LANGUAGES]


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('msgstr "请缩短 {over} 个词元。"', 'msgstr ""', "not translated: 'Shorten it by {over} tokens.'"),
        ('msgstr "请缩短 {over} 个词元。"', 'msgstr "请缩短 {limit} 个词元。"', "other fields than its original"),
        ('msgstr "请缩短 {over} 个词元。"', 'msgstr "请缩短 {over 个词元。"', "other fields than its original"),
        ('msgid "Pause"', '#, fuzzy\nmsgid "Pause"', "fuzzy: 'Pause'"),
        ('msgid "Pause"', 'msgid "Pauses"', "missing: 'Pause'"),
        ('msgid "Pause"', 'msgid "Pauses"', "no longer used: 'Pauses'"),
        ('msgstr "暂停"', 'msgstr "停一下"', "the .mo file is not what its .po file says"),
    ],
)
def test_a_spoilt_catalogue_is_reported(copy: Path, before: str, after: str, problem: str) -> None:
    spoil(copy, before, after)
    assert any(line.startswith(f"zh_Hans: {problem}") for line in problems(copy))


def test_bringing_up_to_date_changes_nothing_when_all_is_well(copy: Path) -> None:
    files = sorted((copy / "assets" / "locale").rglob("inferoscope.*"))
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    write(copy)
    assert len(files) == 4
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in files] == before


def test_bringing_up_to_date_drops_what_is_gone_and_asks_for_what_is_new(copy: Path) -> None:
    spoil(copy, 'msgid "Pause"', 'msgid "Pauses"')
    write(copy)
    found = read(po_file("zh_Hans", copy))
    assert found.get("Pauses") is None
    assert found["Pause"].string == ""
    assert list(problems_of(extract(copy), found)) == ["not translated: 'Pause'"]


def test_the_check_on_the_command_line_passes_and_writes_nothing() -> None:
    files = [po_file(name).with_suffix(suffix) for name in LANGUAGES for suffix in (".po", ".mo")]
    before = [path.stat().st_mtime_ns for path in files]
    command = [sys.executable, "scripts/translations.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.stat().st_mtime_ns for path in files] == before


def test_no_text_is_put_together_before_it_is_looked_up() -> None:
    calls = [
        (p, n) for p in FILES for n in ast.walk(ast.parse(p.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)
    ]
    marked = [(p, n.args[0]) for p, n in calls if isinstance(n.func, ast.Name) and n.func.id in MARKS and n.args]
    assert len(marked) > 500
    assert [f"{p.name}:{text.lineno}" for p, text in marked if isinstance(text, ast.JoinedStr | ast.BinOp)] == []
