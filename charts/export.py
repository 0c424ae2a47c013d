"""A run as one HTML file for a lesson: the tokens, the charts and their tables, readable without the app or a network.

Nothing in the file can run but Plotly and the few lines that call it: the content security policy names both by their
hash and allows no request. All text is escaped, and the figures travel as JSON that no parser takes for markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cache
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from plotly.offline import get_plotlyjs

from charts.base import FONT, MONO, Chart, Palette, Translate, percent
from charts.strip import Glyph, Strip, stop_words, strip
from inference.errors import listed
from inference.sampling import SamplingParams
from inference.trace import Trace

STYLES = Path(__file__).resolve().parents[1] / "assets" / "components" / "lesson.css"
# Plotly adds a style sheet for maps unless an element with its id is there; no chart here is a map
MAP_STYLES = re.compile(r'document\.getElementById\("([0-9a-f]{64})"\)')
BOOT = """
const config = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage"]],
  toImageButtonOptions: { format: "svg" },
};
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [id, { data, layout }] of Object.entries(figures)) Plotly.newPlot(id, data, layout, config);
"""


def lesson_html(trace: Trace, charts: Sequence[Chart], *, t: Translate, palette: Palette, lang: str = "en") -> str:
    """The whole file: what was run, its tokens, the charts with sentences and tables, and the step table.

    Args:
        charts: as drawn on the page; those of what was not recorded are there as their sentence.
        lang: language tag of what `t` gives.
    """
    title = t("A run of {model}, step by step").format(model=trace.model.name)
    body = [
        f"<h1>{escape(title)}</h1>",
        _facts(trace, t),
        _section(t("Tokens"), _tokens(trace, t)),
        _section(t("Generated text"), f"<pre>{escape(_literal(trace.text))}</pre>"),
        *(_chart(at, chart, t) for at, chart in enumerate(charts)),
        _details(t("All steps"), trace.table()),
    ]
    style = _style(palette)
    return (
        f'<!DOCTYPE html>\n<html lang="{escape(lang)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n"
        + _scripts(charts)
        + "</body>\n</html>\n"
    )


def _scripts(charts: Sequence[Chart]) -> str:
    drawn = {f"figure-{at}": chart.figure for at, chart in enumerate(charts) if chart.figure.data}
    figures = {name: json.loads(figure.to_json()) for name, figure in drawn.items()}
    data = json.dumps(figures, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return (
        "".join(f'<template id="{name}"></template>\n' for name in MAP_STYLES.findall(_plotly()))
        + f'<script type="application/json" id="figures">{data}</script>\n'
        f"<script>{_plotly()}</script>\n<script>{BOOT}</script>\n"
    )


def _policy(style: str) -> str:
    """Only these scripts and styles.

    Plotly puts its rules into an empty style element (whence the hash of nothing), sets style attributes of what it
    draws, and draws images of itself.
    """
    scripts = " ".join(f"'sha256-{_hash(script)}'" for script in (_plotly(), BOOT))
    return (
        f"default-src 'none'; script-src {scripts}; style-src-elem 'sha256-{_hash(style)}' 'sha256-{_hash('')}'; "
        "style-src-attr 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _plotly() -> str:
    return str(get_plotlyjs())


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def _facts(trace: Trace, t: Translate) -> str:
    model, last = trace.model, stop_words(trace, t)[1]
    rows = [
        (t("model"), f"{model.name} · {model.architecture} · {model.dtype} · {model.device}"),
        (t("prompt"), t("{n} tokens").format(n=trace.n_prompt)),
        (t("generated"), t("{n} tokens").format(n=len(trace.steps))),
        (t("end"), last),
        (t("settings"), _settings(trace, t)),
        (t("software"), " · ".join(f"{name} {version}" for name, version in trace.versions.items())),
    ]
    items = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows if value)
    return f"<dl>{''.join(items)}</dl>"


def _settings(trace: Trace, t: Translate) -> str:
    """The settings in effect and where each came from."""
    origins = {"yours": t("yours"), "checkpoint": t("checkpoint"), "default": t("default")}
    shown = []
    for field in fields(SamplingParams):
        value = getattr(trace.sampling, field.name)
        if value not in (None, ()):
            origin = trace.origin.get(field.name, "default")
            words = " → ".join(value) if isinstance(value, tuple) else value
            shown.append(f"{field.name} = {words} ({origins.get(origin, origin)})")
    return listed(shown, t)


def _tokens(trace: Trace, t: Translate) -> str:
    shown = strip(trace)
    word, sentence = stop_words(trace, t)
    about = [t("prompt token, id {id}").format(id=token.id) for token in trace.prompt_tokens]
    for step in trace.steps:
        text = t("step {step}, id {id}, raw probability {share}, rank {rank}")
        decision = step.decision
        share = percent(decision.raw_prob)
        about.append(text.format(step=step.index, id=step.token_id, share=share, rank=decision.rank))
    end = f'<span class="end" title="{escape(sentence)}">■ {escape(word)}</span>'
    note = t("Grey: the prompt. The darker a token and the thicker its bar, the less likely it was.")
    return f'<div class="strip">{"".join(_chips(shown, about))}{end}</div>\n<p>{escape(note)}</p>'


def _chips(shown: Strip, about: Sequence[str]) -> Iterable[str]:
    """The tokens; pieces of a character inside a frame under it."""
    glyphs: dict[int, Glyph] = {glyph.start: glyph for glyph in shown.glyphs}
    ends = {glyph.stop for glyph in shown.glyphs}
    for at, token in enumerate(shown.tokens):
        if at in ends:
            yield "</span></span>"
        if at in glyphs:
            yield f'<span class="joined"><span class="glyph">{escape(glyphs[at].text)}</span><span class="pieces">'
        kind = "prompt" if at < shown.n_prompt else f"level-{shown.levels[at - shown.n_prompt]}"
        kind += " special" if token.special else ""
        kind += " cut" if shown.cut and shown.cut[0] <= at < shown.cut[1] else ""
        yield f'<span class="chip {kind}" title="{escape(about[at])}">{escape(token.display or "∅")}</span>'
    if len(shown.tokens) in ends:
        yield "</span></span>"


def _chart(at: int, chart: Chart, t: Translate) -> str:
    figure = ""
    if chart.figure.data:
        figure = f'<div class="figure" id="figure-{at}" role="img" aria-label="{escape(chart.description)}"></div>\n'
    table = "" if chart.table.empty else "\n" + _details(t("Table"), chart.table)
    return _section(chart.title, f"{figure}<p>{escape(chart.description)}</p>{table}")


def _details(title: str, frame: pd.DataFrame) -> str:
    named = frame.index.dtype.kind != "i"
    head = ([""] if named else []) + [str(name) for name in frame.columns]
    rows = []
    for index, values in zip(frame.index, frame.itertuples(index=False), strict=True):
        cells = [f'<th scope="row">{escape(str(index))}</th>'] if named else []
        rows.append("<tr>" + "".join(cells + [f"<td>{escape(_cell(value))}</td>" for value in values]) + "</tr>")
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    table = f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<details><summary>{escape(title)}</summary><div class="scroll">{table}</div></details>'


def _cell(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{value:.6g}"
    return "" if value is None else _literal(str(value))


def _literal(text: str) -> str:
    """Text with what a browser would drop or obey written out."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"⟨U+{ord(c):04X}⟩" for c in text)


def _style(palette: Palette) -> str:
    colours = {
        "background": palette.background,
        "secondary": palette.secondary_background,
        "text": palette.text,
        "muted": palette.muted,
        "border": palette.border,
        "primary": palette.primary,
        "font": FONT,
        "mono": MONO,
    }
    properties = "".join(f"--{name}: {value};" for name, value in colours.items())
    return f":root {{ color-scheme: {palette.mode}; {properties} }}\n{STYLES.read_text(encoding='utf-8')}"
