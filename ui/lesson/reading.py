"""The stations before the first choice: prompt, tokens, prefill, first logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from charts.attention import attention_map
from charts.distribution import distribution
from inference.errors import N_
from inference.lesson import looked, mine, pipeline, raised, sharpest, top
from inference.sampling_params import SamplingParams
from inference.tokens import Token
from inference.trace import Trace
from ui import session
from ui.components.token_rows import Chip, Row, token_rows
from ui.i18n import _
from ui.lesson import runs
from ui.lesson.links import to_attention, to_form, to_playback
from ui.lesson.pieces import card, shares, slider, tokens_card
from ui.lesson.station import KEEP, Scene, Station

if TYPE_CHECKING:
    from inference.models import LoadedModel

SENTENCE = "小狗吃了苹果，它很"  # one word of it is not in the kitten's vocabulary
LONGEST = 200  # characters


def prompt_chips(trace: Trace) -> list[Chip]:
    """The prompt's tokens with their ids; those that were added are dashed."""
    pairs = zip(trace.prompt_tokens, mine(trace), strict=True)
    return [Chip(token.display, str(token.id), "plain" if own else "added") for token, own in pairs]


def _prompt_view(scene: Scene) -> None:
    fed = [Chip(chip.text, kind=chip.kind) for chip in prompt_chips(scene.run)]
    rows = [Row(_("you wrote"), [Chip("".join(scene.run.request.texts))]), Row(_("the model is fed"), fed)]
    tokens_card(scene, _("The prompt"), rows, "lesson-prompt", _("Dashed: added by the tokenizer."))


@st.fragment
def _prompt_try(scene: Scene) -> None:
    if scene.printed or st.toggle(_("Show a chat prompt"), key="lesson-chat", **KEEP):
        chips = [Chip(chip.text, kind=chip.kind) for chip in prompt_chips(scene.chat)]
        token_rows([Row("", chips)], label=_("A chat prompt; what the template added is dashed"), key="lesson-template")
        st.text(
            _("{chat_model} was asked “{chat_prompt}”: {chat_written} tokens. With its template {chat_n} go in; the "
              "{chat_added} others name the roles and mark where each turn ends.", **scene.values)
        )  # fmt: skip


PROMPT = Station(
    name="prompt",
    title=N_("Prompt"),
    sentences=(
        N_("A language model goes on with a text; what it begins with is the prompt, here “{prompt}”: the kitten "
           "ran all day, and now it is very …"),
        N_("{n} tokens go in: {n_written} are yours, and {added} was put in front, to mark where the text begins."),
        N_("A chat model is given more: a template wraps your words in roles and markers."),
    ),
    view=_prompt_view,
    trying=N_("Look at what a chat template adds."),
    attempt=_prompt_try,
    question=N_("Does the model know which tokens are yours?"),
    answer=N_("No. To the model all of them are one row of tokens. It has only learnt, in training, what usually "
              "follows the markers."),
    page=N_("Playback"),
    open=lambda scene: to_form(scene, "".join(scene.run.request.texts)),
)  # fmt: skip


def _tokens_view(scene: Scene) -> None:
    rows = [Row("", prompt_chips(scene.run))]
    tokens_card(scene, _("The prompt's tokens"), rows, "lesson-tokens", _("Below each token its id."))


def _tokens_try(scene: Scene) -> None:
    if scene.printed:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(_("A sentence"), SENTENCE, key="lesson-sentence", max_chars=LONGEST, **KEEP)
        if st.button(_("Cut into tokens"), key="lesson-cut", disabled=session.busy("lesson cut") or not text):
            runs.ask("lesson cut", _cutting(text))
            st.rerun()
    tokens: list[Token] | None = runs.answer("lesson cut", _("Cutting the sentence into tokens"))
    if tokens is None:
        return
    unknown = scene.run.vocabulary.token(0)
    chips = [Chip(token.display, str(token.id), "hidden" if token.id == unknown.id else "plain") for token in tokens]
    token_rows([Row("", chips)], label=_("The sentence's tokens with their ids"), key="lesson-cut-rows")
    n_unknown = sum(token.id == unknown.id for token in tokens)
    if n_unknown:
        said = _(
            "{n} tokens. What the vocabulary lacks becomes {unknown}: {n_unknown} of them.",
            n=len(tokens), n_unknown=n_unknown, unknown=unknown.display,
        )  # fmt: skip
    else:
        said = _("{n} tokens, and the vocabulary holds them all.", n=len(tokens))
    st.text(said)


def _cutting(text: str) -> Callable[[LoadedModel, Callable[[float], None], Callable[[], bool]], list[Token]]:
    """Work that cuts a text with the model's own tokenizer."""

    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> list[Token]:
        tokenizer = model.tokenizer
        return [tokenizer.vocabulary.token(int(i)) for i in tokenizer.encode_text(text)]

    return work


TOKENS = Station(
    name="tokens",
    title=N_("Tokens"),
    sentences=(
        N_("A model computes with numbers, so the tokenizer cuts the {n_characters} characters into {n_tokens} "
           "pieces, the tokens, and looks up the number of each, its id: {token} is {id}."),
        N_("The kitten's vocabulary holds {n_vocabulary} tokens, whole words chosen for this lesson; that of "
           "{chat_model} holds {chat_vocabulary:,}, many of them pieces of words."),
    ),
    view=_tokens_view,
    trying=N_("Have a sentence cut, and use a word that the kitten has never seen."),
    attempt=_tokens_try,
    question=N_("Why not simply one token a character?"),
    answer=N_("The text would have many more tokens, and each takes computing and a place in the cache. One token a "
              "word would need an endless vocabulary. Pieces of words lie between the two."),
    page=N_("Playback"),
    open=lambda scene: to_form(scene, st.session_state.get("lesson-sentence", SENTENCE)),
)  # fmt: skip


def _prefill_view(scene: Scene) -> None:
    layer, head = sharpest(scene.run)
    card(scene, attention_map(scene.run, 0, layer, head, palette=scene.palette, t=_), "lesson-attention", 330)


def attention_place(scene: Scene) -> tuple[int, int, int]:
    """The layer, head and position that the reader chose; at first the pair that the sentences name."""
    layer, head = sharpest(scene.run)
    kept = st.session_state
    return (
        kept.get("lesson-layer", layer),
        kept.get("lesson-head", head),
        kept.get("lesson-position", scene.run.n_prompt - 1),
    )


@st.fragment
def _prefill_try(scene: Scene) -> None:
    run, (layer, head, position) = scene.run, attention_place(scene)
    if not scene.printed:
        with st.container(horizontal=True):
            position = slider(
                scene, _("Token at position"), 0, run.n_prompt - 1, position, "lesson-position", width="stretch"
            )
            layer = _choice(_("Layer"), run.model.n_layers, layer, "lesson-layer")
            head = _choice(_("Head"), run.model.n_heads, head, "lesson-head")
    found, weights = looked(run, layer, head, position), run.attention(0, layer)[head, position]
    chips = [
        Chip(token.display, f"{weight:.0%}" if at < found["n_visible"] else _("hidden"),
             _kind(at, position), float(weight))
        for at, (token, weight) in enumerate(zip(run.prompt_tokens, weights, strict=True))
    ]  # fmt: skip
    token_rows([Row("", chips)], label=_("How much the token reads each position"), key="lesson-reads")
    st.text(
        _(
            "“{token}”, at position {position}, sees {n_visible} positions and reads “{read}” most: {weight:.0%}.",
            **found,
        )
    )


def _choice(label: str, n: int, first: int, key: str) -> int:
    st.session_state.setdefault(key, first)
    return st.selectbox(label, range(n), key=key, width=90, **KEEP)


def _kind(at: int, position: int) -> str:
    return "chosen" if at == position else "hidden" if at > position else "plain"


PREFILL = Station(
    name="prefill",
    title=N_("Prefill"),
    sentences=(
        N_("All {n} prompt tokens go through the model together, in one forward pass: the prefill."),
        N_("Each position reads itself and what stands before it, never what comes later ({n_seen} of {n_pairs} "
           "pairs); in layer {layer}, head {head}, {token} reads {read} most, with {weight:.0%} of its attention."),
        N_("Every layer keeps a key and a value of each position, so the cache now holds {n_cached} positions in "
           "each of {n_layers} layers."),
    ),
    view=_prefill_view,
    trying=N_("Let another token look back, in any head."),
    attempt=_prefill_try,
    question=N_("Why may {token} not look ahead at {next}?"),
    answer=N_("Here {next} does not exist yet. In training it does, and a look ahead would give the answer away: the "
              "model would learn to copy, not to predict."),
    page=N_("Attention"),
    open=lambda scene: to_attention(scene.run, *attention_place(scene)),
)  # fmt: skip


def _logits_view(scene: Scene) -> None:
    card(scene, distribution(scene.run, 0, palette=scene.palette, t=_, n=8), "lesson-distribution")


@st.fragment
def _logits_try(scene: Scene) -> None:
    run, likeliest = scene.run, top(scene.run, 5)
    token = likeliest[2]
    label = _("Added to the logit of {token}", token=token.display)
    by = slider(scene, label, -3.0, 3.0, 1.0, "lesson-raise", step=0.25)
    before, after = run.probs(0), pipeline(run, _biased(token, by))[-1].probs
    rows = [Row(_("before"), shares(likeliest, before, token)), Row(_("after"), shares(likeliest, after, token))]
    token_rows(rows, label=_("Probabilities before and after"), key="lesson-raised")
    st.text(
        _("Adding {by:+g} multiplies the odds of {token} by {factor:.2f}: its probability goes from {before:.2f} to "
          "{after:.2f}. The others keep their proportions.", token=token.display, **raised(run, token.id, by))
    )  # fmt: skip


def _biased(token: Token, by: float) -> SamplingParams:
    return SamplingParams(greedy=False, sequence_bias=(((token.id,), by),))


LOGITS = Station(
    name="logits",
    title=N_("First logits"),
    sentences=(
        N_("Only the last position, {last}, is asked what comes next: it gives each of the {n_vocabulary} tokens "
           "a score, the logit, and {a} gets {logit:.2f}."),
        N_("Softmax turns the logits into probabilities that add up to {total:.2f}: {a} {p_a:.2f}, {b} {p_b:.2f},"
           " {c} {p_c:.2f}, all the others together {p_rest:.2f}."),
    ),
    view=_logits_view,
    trying=N_("Raise or lower a single logit."),
    attempt=_logits_try,
    question=N_("What happens if every logit grows by the same amount?"),
    answer=N_("Nothing. Every exponential grows by the same factor, and in the fraction the factor cancels: softmax "
              "only sees differences."),
    page=N_("Playback"),
    open=lambda scene: to_playback(scene.run, 0),
)  # fmt: skip
