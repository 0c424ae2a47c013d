"""Every kind of vocabulary is seen as bytes."""

from __future__ import annotations

import copy

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from inference import GenerationRequest
from inference.errors import RequestError
from inference.tokenizer import Tokenizer as Bytes
from tests.scripted import VOCAB, byte_tokenizer


def sentencepiece_like() -> PreTrainedTokenizerFast:
    """Llama 2's kind: `▁` for a space, `<0xE5>` for a byte that has no token of its own."""
    names = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "▁a", "b", "猫"]
    backend = Tokenizer(
        models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=[], unk_token="<unk>", byte_fallback=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken("<s>")])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>")


def test_a_sentencepiece_like_vocabulary_spells_spaces_and_bytes() -> None:
    vocabulary = Bytes(sentencepiece_like(), 262).vocabulary
    pieces = {
        name: vocabulary.token(i).data for i, name in [(2 + 0xE5, "byte"), (258, "space"), (259, "a"), (261, "cat")]
    }
    assert pieces == {"byte": b"\xe5", "space": b" ", "a": b" a", "cat": "猫".encode()}
    assert vocabulary.token(1).special


def test_text_spelt_in_bytes_joins_to_what_the_tokenizer_itself_decodes() -> None:
    hf = sentencepiece_like()
    ids = hf.encode("b 😀猫b", add_special_tokens=False)
    vocabulary = Bytes(hf, 262).vocabulary
    # the tokenizer's own decoder drops the space before the first word of a text; in the middle it stays
    assert b"".join(vocabulary.token(i).data for i in ids).decode() == " b 😀猫b" == " " + hf.decode(ids)


def test_ids_past_the_tokenizers_own_are_shown_as_numbers() -> None:
    vocabulary = Bytes(byte_tokenizer(), VOCAB).vocabulary
    assert [vocabulary.token(i).display for i in (97, 255, 260, 262, 263)] == ["a", "⟨FF⟩", "<eos>", "<262>", "<263>"]
    assert vocabulary.token(263).special


def test_a_chat_template_that_refuses_a_conversation_says_why() -> None:
    hf = sentencepiece_like()
    hf.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RequestError, match="roles must alternate"):
        Bytes(hf, 262).encode(GenerationRequest(prompt="a", chat=True))


def test_a_conversation_of_several_turns_goes_through_the_template_in_order() -> None:
    hf = sentencepiece_like()
    hf.chat_template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
    request = GenerationRequest(prompt=(("user", "a"), ("assistant", "b"), ("user", "c")), chat=True, system="s")
    assert Bytes(hf, 262).chat_text(request) == "s:s;u:a;a:b;u:c;"


def test_a_byte_level_token_that_was_added_as_plain_text_keeps_its_own_characters() -> None:
    hf = copy.deepcopy(byte_tokenizer())
    hf.add_tokens([AddedToken("two words 猫", special=False)])
    vocabulary = Bytes(hf, VOCAB).vocabulary
    added = hf.convert_tokens_to_ids("two words 猫")
    assert vocabulary.token(added).data == "two words 猫".encode()
    assert [vocabulary.token(i).data for i in (97, 0xE7, 259)] == [b"a", b"\xe7", b"opera"]
