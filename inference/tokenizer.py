"""A tokenizer seen as bytes: what every token id stands for, encoding, and what a chat template adds.

Knows the three spellings in use: byte-level vocabularies (GPT-2 and most since), SentencePiece-like ones with
`▁` for a space and `<0xE5>` for a byte, and plain text. It takes a fast Hugging Face tokenizer and asks it for
strings and ids only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from jinja2 import TemplateError
from numpy.typing import NDArray

from inference.errors import N_, RequestError
from inference.request import GenerationRequest
from inference.tokens import Vocabulary, byte_level_alphabet

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """Encodes requests and names tokens.

    Args:
        hf: a fast Hugging Face tokenizer.
        vocab_size: V of the model's logits; ids past the tokenizer's own are shown as numbers.
    """

    def __init__(self, hf: Any, vocab_size: int) -> None:
        self.hf = hf
        self.vocabulary = _vocabulary(hf, vocab_size)

    @property
    def has_chat_template(self) -> bool:
        """Whether the checkpoint brings a chat template."""
        return bool(self.hf.chat_template)

    def encode(self, request: GenerationRequest) -> NDArray[np.int64]:
        """[P] prompt token ids: of `prompt_ids` as they are, of the text with the tokenizer's own special tokens,
        or of the conversation in the chat template, with the assistant's turn opened."""
        if request.prompt_ids is not None:
            return np.array(request.prompt_ids, dtype=np.int64)
        if request.chat:
            text = self.chat_text(request)
            return np.array(self.hf.encode(text, add_special_tokens=False), dtype=np.int64)
        return np.array(self.hf.encode(request.prompt), dtype=np.int64)

    def encode_text(self, text: str) -> list[int]:
        """Token ids of a piece of text, without special tokens at its ends."""
        return [int(i) for i in self.hf.encode(text, add_special_tokens=False)]

    def chat_text(self, request: GenerationRequest) -> str:
        """The conversation as the template writes it."""
        if not self.has_chat_template:
            raise RequestError(
                N_("This model has no chat template."),
                N_("Turn chat off, or use a model that was tuned for chat."),
            )
        try:
            return str(self.hf.apply_chat_template(_messages(request), tokenize=False, add_generation_prompt=True))
        except TemplateError as error:
            raise RequestError(
                N_("The model's chat template refuses this conversation: {reason}"),
                N_("Check the order of the turns and whether a system text is allowed."),
                reason=error.message or type(error).__name__,
            ) from None


def _messages(request: GenerationRequest) -> list[dict[str, str]]:
    turns = (("user", request.prompt),) if isinstance(request.prompt, str) else request.prompt
    system = [("system", request.system)] if request.system else []
    return [{"role": role, "content": text} for role, text in (*system, *turns)]


def _vocabulary(hf: Any, vocab_size: int) -> Vocabulary:
    special = frozenset(i for i, t in hf.added_tokens_decoder.items() if t.special)
    known = min(len(hf), vocab_size)
    names: Sequence[str | None] = hf.convert_ids_to_tokens(list(range(known)))
    pieces = _speller(hf)([name or "" for name in names])
    for i, token in hf.added_tokens_decoder.items():
        if i < known:
            pieces[i] = token.content.encode()
    for i in (i for i, name in enumerate(names) if name is None):
        pieces[i] = f"<{i}>".encode()
    pieces += [f"<{i}>".encode() for i in range(known, vocab_size)]
    return Vocabulary.from_bytes(pieces, special | frozenset(range(known, vocab_size)))


def _speller(hf: Any) -> Callable[[Sequence[str]], list[bytes]]:
    """How this vocabulary's strings spell bytes, read from its decoder."""
    decoder = _decoder_json(hf)
    if '"ByteLevel"' in decoder:
        return _byte_level
    if '"ByteFallback"' in decoder or '"Metaspace"' in decoder or "\u2581" in decoder:
        return lambda names: [_sentencepiece(name) for name in names]
    if '"WordPiece"' in decoder:
        return lambda names: [name[2:].encode() if name.startswith("##") else f" {name}".encode() for name in names]
    return lambda names: [name.encode() for name in names]


def _decoder_json(hf: Any) -> str:
    """The decoder's own JSON; the whole tokenizer's would take a quarter of a second to write and read."""
    decoder = hf.backend_tokenizer.decoder
    return "" if decoder is None else bytes(decoder.__getstate__()).decode()


def _byte_level(names: Sequence[str]) -> list[bytes]:
    """One character a byte, all names translated in one go; one with other characters was added as plain text."""
    alphabet = byte_level_alphabet()
    foreign = set("".join(names)) - alphabet.keys()
    spelt = [name if foreign.isdisjoint(name) else "" for name in names] if foreign else names
    data = "".join(spelt).translate({ord(c): byte for c, byte in alphabet.items()}).encode("latin-1")
    ends = list(accumulate(map(len, spelt)))
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [piece or name.encode() for piece, name in zip(pieces, names, strict=True)]


def _sentencepiece(name: str) -> bytes:
    byte = _BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace("▁", " ").encode()
