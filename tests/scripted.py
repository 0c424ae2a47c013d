"""A real tiny model whose logits follow a script, and a byte-level tokenizer: for tests of the loop itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from inference.forward import Forward, PassResult
from inference.models import LoadedModel, wrap
from inference.tokens import byte_level_alphabet

MERGES = [("o", "p"), ("e", "r"), ("op", "er"), ("oper", "a")]
EOS, END, VOCAB = 260, 261, 264
CONTEXT = 64


@cache
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Ids 0-255 are the bytes; 256-259 are merges up to "opera"; then `<eos>` and `<end>`, both special."""
    alphabet = sorted(byte_level_alphabet().items(), key=lambda item: item[1])
    vocab = dict(alphabet)
    for left, right in MERGES:
        vocab[left + right] = len(vocab)
    backend = Tokenizer(models.BPE(vocab=vocab, merges=MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<eos>"), AddedToken("<end>")])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")


@cache
def tiny_model() -> LoadedModel:
    """A random two-layer llama over the byte vocabulary, with a context of 64 and two EOS ids."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        eos_token_id=[EOS, END],
        bos_token_id=None,
        pad_token_id=None,
        initializer_range=0.4,
    )
    return wrap(LlamaForCausalLM(config), byte_tokenizer(), "tiny")


class Scripted(Forward):
    """Runs the real model, then lets `script(call, logits)` replace the logits; calls are counted from 0."""

    def __init__(self, real: Forward, script: Callable[[int, torch.Tensor], torch.Tensor]) -> None:
        super().__init__(real.model, real.eager_weights)
        self._script, self.calls = script, 0

    def __call__(self, *args, **kwargs) -> PassResult:
        result = super().__call__(*args, **kwargs)
        self.calls += 1
        return PassResult(self._script(self.calls - 1, result.logits), result.weights)


def scripted(script: Callable[[int, torch.Tensor], torch.Tensor]) -> LoadedModel:
    """The tiny model with a script over its logits."""
    return replace(tiny_model(), forward=Scripted(tiny_model().forward, script))


def saying(ids: Sequence[int]) -> LoadedModel:
    """The tiny model, made to choose exactly these tokens one after the other."""

    def script(call: int, logits: torch.Tensor) -> torch.Tensor:
        logits = logits.clone()
        logits[ids[min(call, len(ids) - 1)]] = 100.0
        return logits

    return scripted(script)
