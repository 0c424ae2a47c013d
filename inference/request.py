"""What is asked of the engine: the prompt, the limits, the settings, and what to keep of each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from inference.errors import N_, RequestError
from inference.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to keep of each step. The need is computed before the run; see `inference.budget`.

    Attributes:
        logits: `True` for the whole vocabulary, a number for that many of the highest, `False` for none.
        attention: queries and keys of all layers, of the given layers, or none.
        hidden: last-position hidden state of every layer.
        router: experts chosen, where the model has any.
        lens: what each layer would say, computed when the run has ended (see `inference.lens`).
        max_trace_bytes: limit for all of it.
    """

    logits: bool | int = True
    attention: bool | tuple[int, ...] = True
    hidden: bool = True
    router: bool = True
    lens: bool = False
    max_trace_bytes: int = 512 * 2**20


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request.

    Attributes:
        prompt: text; or with `chat`, the user's message, or the whole conversation as (role, text) pairs.
        prompt_ids: token ids to use as they are, instead of `prompt`.
        chat: put the prompt through the model's chat template.
        system: system message for the template.
        max_new_tokens: counts new tokens only.
        stop_strings: the run ends when the generated text contains one of them.
        include_stop_string: keep the stop string in the text instead of cutting before it.
        ignore_eos: do not stop at the model's EOS tokens.
        prefill_chunk: prefill in passes of at most this many positions.
    """

    prompt: str | tuple[tuple[str, str], ...] = ""
    prompt_ids: tuple[int, ...] | None = None
    chat: bool = False
    system: str | None = None
    max_new_tokens: int = 64
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop_strings: tuple[str, ...] = ()
    include_stop_string: bool = False
    ignore_eos: bool = False
    prefill_chunk: int | None = None
    record: RecordOptions = field(default_factory=RecordOptions)

    def __post_init__(self) -> None:
        turns = self.prompt if isinstance(self.prompt, str) else tuple((str(r), str(t)) for r, t in self.prompt)
        object.__setattr__(self, "prompt", turns)
        object.__setattr__(self, "stop_strings", _texts(self.stop_strings))
        if self.prompt_ids is not None:
            object.__setattr__(self, "prompt_ids", tuple(int(i) for i in self.prompt_ids))
        for text in self.texts:
            _check_text(text)
        _check_count("max_new_tokens", self.max_new_tokens)
        if self.prefill_chunk is not None:
            _check_count("prefill_chunk", self.prefill_chunk)
        if not isinstance(self.prompt, str) and not self.chat:
            raise RequestError(
                N_("A conversation of several turns needs the chat template."),
                N_("Set chat, or give one text."),
            )

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text of the request, for checks."""
        turns = (self.prompt,) if isinstance(self.prompt, str) else tuple(t for _, t in self.prompt)
        return (*turns, *((self.system,) if self.system else ()), *self.stop_strings)


def _texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    texts = (texts,) if isinstance(texts, str) else tuple(texts)
    if any(not isinstance(text, str) or not text for text in texts):
        raise RequestError(
            N_("A stop string is empty."), N_("Give at least one character, or leave the stop string out.")
        )
    return texts


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            N_("The text holds half of a surrogate pair (U+{code:04X}) at character {at}, which is no character."),
            N_("Delete it, or paste the text again."),
            code=ord(text[error.start]),
            at=error.start + 1,
        ) from None


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(
            N_("{name} must be a whole number of at least 1, not {value}."), name=name, value=repr(value)
        )
