"""The stations on choosing, on the loop, and on how a run ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from charts.strip import stop_words
from inference.errors import N_
from inference.lesson import COLD, HOT, SHORT_LIMIT, TOP_K, TOP_P, kept, likelihood, pipeline, top
from inference.sampling_params import SamplingParams
from inference.trace import Trace
from ui import session
from ui.components.token_rows import Chip, Row, token_rows
from ui.i18n import _
from ui.lesson import runs
from ui.lesson.links import to_playback, to_sampling
from ui.lesson.pieces import shares, slider, tokens_card
from ui.lesson.station import Scene, Station
from ui.literal import literal

if TYPE_CHECKING:
    from inference.engine import Generation
    from inference.models import LoadedModel

N_SHOWN = 5  # tokens of the first distribution
N_CHOICES = 4  # tokens that can be put in the place of the first


def _choosing_view(scene: Scene) -> None:
    run = scene.run
    settings = {
        _("raw"): {},
        f"Top-k {TOP_K}": {"top_k": TOP_K},
        f"Top-p {TOP_P:g}": {"top_p": TOP_P},
        f"{_('Temperature')} {COLD:g}": {"temperature": COLD},
        f"{_('Temperature')} {HOT:g}": {"temperature": HOT},
    }
    found = {name: pipeline(run, SamplingParams(greedy=False, **given))[-1].probs for name, given in settings.items()}
    likeliest = top(run, N_SHOWN)
    rows = [Row(name, shares(likeliest, probs)) for name, probs in found.items()]
    table = pd.DataFrame({name: [float(probs[token.id]) for token in likeliest] for name, probs in found.items()},
                         index=[token.display for token in likeliest])  # fmt: skip
    title = _("The first distribution, as it is and under settings")
    tokens_card(scene, title, rows, "lesson-settings", _("A dash: removed by the setting."), table)


def settings(scene: Scene) -> SamplingParams:
    """What the reader has set; before, and on paper, all is off but top-p."""
    given = {} if scene.printed else st.session_state
    return SamplingParams(
        greedy=False,
        temperature=given.get("lesson-temperature", 1.0),
        top_k=given.get("lesson-k", scene.run.model.vocab_size),
        top_p=given.get("lesson-p", TOP_P),
    )


@st.fragment
def _choosing_try(scene: Scene) -> None:
    run, n = scene.run, scene.run.model.vocab_size
    with st.container(horizontal=True):
        slider(scene, _("Temperature"), 0.1, 3.0, 1.0, "lesson-temperature", step=0.1, width="stretch")
        slider(scene, "Top-k", 1, n, n, "lesson-k", width="stretch")
        slider(scene, "Top-p", 0.05, 1.0, TOP_P, "lesson-p", step=0.05, width="stretch")
    params = settings(scene)
    stage = pipeline(run, params)[-1]
    likeliest, probs = top(run, N_SHOWN), run.probs(0)
    rows = [Row(_("raw"), shares(likeliest, probs)), Row(_("yours"), shares(likeliest, stage.probs))]
    token_rows(rows, label=_("Probabilities before and after"), key="lesson-settled")
    st.text(
        _("Tokens left: {n} ({kept}). {token} has {p:.2f}.", n=int(stage.kept.sum()), kept=kept(run, stage),
          token=likeliest[0].display, p=float(stage.probs[likeliest[0].id]))
    )  # fmt: skip


CHOOSING = Station(
    name="choosing",
    title=N_("Choosing"),
    sentences=(
        N_("Greedy decoding always takes the likeliest token, {a}; drawing takes each one as often as its "
           "probability says, so the same prompt can go on in different ways."),
        N_("Top-k = {k} leaves {a} and {b}, with {k_a:.2f} and {k_b:.2f}; top-p = {p:g} keeps the likeliest "
           "tokens until they reach it together: {p_kept}."),
        N_("A temperature below {off:g} sharpens, one above flattens, and the order never changes: {a} has "
           "{cold_a:.2f} at {cold:g}, and {hot_a:.2f} at {hot:g}."),
    ),
    view=_choosing_view,
    trying=N_("Move temperature, k and p, and watch which tokens are left."),
    attempt=_choosing_try,
    question=N_("And a temperature of zero?"),
    answer=N_("The formula would divide by zero, so zero is treated as greedy: all probability goes to the likeliest "
              "token."),
    page=N_("Sampling lab"),
    open=lambda scene: to_sampling(scene.run, settings(scene)),
)  # fmt: skip


def run_rows(run: Trace) -> list[Row]:
    """A row a pass: what is fed, and what is chosen from its logits, with the positions in the cache after it."""
    rows = []
    for step in run.steps:
        fed = [Chip(run.vocabulary.token(int(i)).display) for i in step.fed_ids]
        chosen = Chip(run.vocabulary.token(step.token_id).display, f"{step.decision.raw_prob:.2f}", "chosen")
        name = _("prefill") if step.index == 0 else _("decode {n}", n=step.index)
        cached = _("{n} in the cache", n=int(step.kv.positions.max()))
        rows.append(Row(name, [*fed, Chip("→", kind="arrow"), chosen], cached))
    return rows


def _loop_view(scene: Scene) -> None:
    said = _("Left of the arrow what the pass is fed, right of it what is chosen.")
    table = _likelihood_table(scene.run)
    tokens_card(scene, _("The run, pass by pass"), run_rows(scene.run), "lesson-loop", said, table)


def _likelihood_table(run: Trace) -> pd.DataFrame:
    found = likelihood(run)
    return pd.DataFrame(
        {
            _("token"): [token.display for token in run.tokens[run.n_prompt :]],
            _("log-probability"): found["logprobs"],
            _("sum so far"): found["sums"],
        }
    )


def _loop_try(scene: Scene) -> None:
    if scene.printed:
        return
    others = top(scene.run, N_CHOICES)[1:]
    with st.container(horizontal=True, vertical_alignment="center"):
        for token in others:
            label = _("Take {token}", token=literal(token.display))
            if st.button(label, key=f"lesson-take-{token.id}", disabled=session.busy("lesson branch")):
                runs.ask("lesson branch", runs.running(_branching(scene.run, token.id)))
                st.rerun()
    found: Trace | None = runs.answer("lesson branch", _("The kitten writes on"))
    if found is not None:
        token_rows(run_rows(found), label=_("The other run, pass by pass"), key="lesson-branch-rows")
        st.text(_("“{text}” came of it: log P = −{loss:.4f}, P = {p_total:.2f}.", text=found.text, **likelihood(found)))


def _branching(run: Trace, token_id: int) -> runs.Begin:
    def start(model: LoadedModel) -> Generation:
        from inference.branch import branch

        return branch(model, run, 0, token_id)

    return start


def _latest(name: str, run: Trace) -> Trace:
    """The run that the reader made last, or the lesson's own."""
    job = session.work(name)
    return run if job is None or job.result is None else job.result


LOOP = Station(
    name="loop",
    title=N_("The loop"),
    sentences=(
        N_("{first} is written behind the text, and the model is asked again: from now on each pass is fed a "
           "single token, the one just chosen, and this is called decoding."),
        N_("Pass number {n} chooses {last}, and the run ends."),
        N_("The text's probability is the product of the steps' probabilities, so their logarithms add up: log P "
           "= −{loss:.4f}, P = {p_total:.2f}."),
    ),
    view=_loop_view,
    trying=N_("Put another token in the first place: all that follows is computed anew, by the model itself."),
    attempt=_loop_try,
    question=N_("Why is the answer not computed in one pass, as the prompt is?"),
    answer=N_("Each pass needs the token that the one before it chose. All tokens of the prompt are known at the "
              "start; of the answer none is."),
    page=N_("Playback"),
    open=lambda scene: to_playback(_latest("lesson branch", scene.run), 0),
)  # fmt: skip


def _stopping_view(scene: Scene) -> None:
    tokens_card(scene, _("What was chosen, and what of it is text"), _ending(scene.run), "lesson-ending")


def _ending(run: Trace) -> list[Row]:
    tokens = run.tokens[run.n_prompt :]
    return [
        Row(_("chosen"), [Chip(t.display, str(t.id), "added" if t.special else "plain") for t in tokens]),
        Row(_("text"), [Chip(run.text)]),
        Row(_("ended by"), [Chip(stop_words(run, _)[0], kind="words")]),
    ]


def _stopping_try(scene: Scene) -> None:
    if scene.printed:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        limit = slider(scene, _("New tokens at most"), 1, 5, SHORT_LIMIT, "lesson-limit", width=260)
        if st.button(_("Run"), key="lesson-run", icon=":material/play_arrow:", disabled=session.busy("lesson limit")):
            runs.ask("lesson limit", runs.running(_limited(scene.run, limit)))
            st.rerun()
    found: Trace | None = runs.answer("lesson limit", _("The kitten writes"))
    if found is not None:
        token_rows(_ending(found), label=_("What was chosen, and what of it is text"), key="lesson-limit-rows")
        st.text(stop_words(found, _)[1])


def _limited(run: Trace, limit: int) -> runs.Begin:
    def start(model: LoadedModel) -> Generation:
        from inference.engine import generate

        return generate(model, replace(run.request, max_new_tokens=limit))

    return start


STOPPING = Station(
    name="stopping",
    title=N_("Stopping"),
    sentences=(
        N_("{end} (id {end_id}) is the end token: choosing it ends the run, it is never fed, and it is not part "
           "of the text, “{text}”."),
        N_("“{before}” ends a sentence for us; for the model it is a token like any other."),
        N_("A run also ends when it has as many new tokens as were asked for, finished or not."),
    ),
    view=_stopping_view,
    trying=N_("Run it again with at most {limit} new tokens."),
    attempt=_stopping_try,
    question=N_("With at most {limit} new tokens the text is the same. What differs?"),
    answer=N_("The reason. The run was cut off by the limit; {end} was never chosen, so nobody knows whether the model "
              "was done."),
    page=N_("Playback"),
    open=lambda scene: _to_end(_latest("lesson limit", scene.run)),
)  # fmt: skip


def _to_end(run: Trace) -> tuple[str, dict[str, str]]:
    return to_playback(run, len(run.steps) - 1)
