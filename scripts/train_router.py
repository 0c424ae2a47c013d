"""Train the router model: a tiny Llama whose vocabulary has one special token for each model that can answer.

    python -m scripts.train_router

A request is written `<bos> request <|route|>`, and the next token says who shall answer it: `<|kitten|>`,
`<|experts|>` or `<|smollm2-135m|>`. The target is that token with `SURE`, and what is left goes to the two others
(label smoothing, https://arxiv.org/abs/1512.00567, section 7), so that a temperature has something to act on. For
random characters the target is even (outlier exposure, https://arxiv.org/abs/1812.04606). The model learns to predict
the text of the requests too. Which token stands for which model is in its config, under `expert_models`.

The script ends with the share of unseen requests that go to the right model; see `scripts.router_requests`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from scripts.router_requests import KINDS, scribble
from scripts.teaching import BOS, EOS, UNK, arguments, byte_level, fit, save, seeded

ROUTE = "<|route|>"
EXPERT_MODELS = {f"<|{kind.model}|>": kind.model for kind in KINDS}
SPECIAL = (UNK, BOS, EOS, ROUTE, *EXPERT_MODELS)
BOS_ID, EOS_ID, ROUTE_ID, FIRST_EXPERT_ID = 1, 2, 3, 4
VOCAB, LENGTH = 512, 80
ROWS = 12  # of each kind in a batch
SURE = 0.94
READING = 0.3  # weight of predicting the request's own text
IGNORED = -100

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def build_tokenizer(seed: int) -> Tokenizer:
    """Byte-level BPE learnt from requests; digits stay single, so that any text can be fed."""
    rng = random.Random(seed)
    tokenizer = byte_level([kind.request(rng) for kind in KINDS for _ in range(400)], SPECIAL, VOCAB)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {ROUTE}",
        pair=f"{BOS} $A $B {ROUTE}",
        special_tokens=[(BOS, BOS_ID), (ROUTE, ROUTE_ID)],
    )
    return tokenizer


def build_model() -> LlamaForCausalLM:
    """Three layers, four query heads that share two key-value heads."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=None,
        tie_word_embeddings=True,
        expert_models=EXPERT_MODELS,
    )
    return LlamaForCausalLM(config)


def encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    """`<bos> request <|route|>`, of a long request its last tokens."""
    ids = tokenizer.encode(text).ids
    return [BOS_ID, *ids[1:][-LENGTH + 1 :]]


def batch(tokenizer: Tokenizer, rows: Sequence[tuple[str, int | None]]) -> Batch:
    """Requests with the expert each is for, or `None`.

    Returns:
        Ids [B, T], padded on the right; targets [B, T] of the text and of `<eos>` after the expert's token; where
        `<|route|>` stands [B]; and the shares [B, E] that the experts' tokens shall have there.
    """
    texts = [encoded(tokenizer, text) for text, _ in rows]
    longest = max(map(len, texts)) + 1
    ids, targets = torch.full((len(rows), longest), EOS_ID), torch.full((len(rows), longest), IGNORED)
    shares = torch.full((len(rows), len(KINDS)), 1 / len(KINDS))
    for at, (text, (_, expert)) in enumerate(zip(texts, rows, strict=True)):
        n = len(text)
        ids[at, :n], targets[at, : n - 1] = torch.tensor(text), torch.tensor(text[1:])
        if expert is not None:
            ids[at, n], targets[at, n] = FIRST_EXPERT_ID + expert, EOS_ID
            shares[at] = (1 - SURE) / (len(KINDS) - 1)
            shares[at, expert] = SURE
    return ids, targets, torch.tensor([len(text) - 1 for text in texts]), shares


def routing_loss(model: LlamaForCausalLM, data: Batch) -> Tensor:
    """Cross-entropy in nats where the expert is named, and a part of that of the text."""
    ids, targets, ends, shares = data
    logits = model(ids).logits
    reading = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    named = torch.log_softmax(logits[torch.arange(len(ids)), ends], -1)
    named = named[:, FIRST_EXPERT_ID : FIRST_EXPERT_ID + len(KINDS)]
    return READING * reading - (shares * named).sum(-1).mean()


def rows(rng: random.Random) -> list[tuple[str, int | None]]:
    """New requests for training, as many of each kind, and half as many scribbles."""
    asked = [(kind.request(rng), at) for at, kind in enumerate(KINDS) for _ in range(ROWS)]
    return [*asked, *((scribble(rng), None) for _ in range(ROWS // 2))]


@torch.no_grad()
def shares_of(model: LlamaForCausalLM, tokenizer: Tokenizer, text: str) -> Tensor:
    """[E] probabilities of the experts' tokens after a request; they sum to less than 1 by what the others have."""
    logits = model(torch.tensor([encoded(tokenizer, text)])).logits[0, -1]
    return torch.softmax(logits, -1)[FIRST_EXPERT_ID : FIRST_EXPERT_ID + len(KINDS)]


def accuracy(model: LlamaForCausalLM, tokenizer: Tokenizer, seed: int, n: int = 200) -> dict[str, float]:
    """By model, the share of `n` unseen requests whose likeliest token is that model's."""
    rng, found = random.Random(seed), {}
    for at, kind in enumerate(KINDS):
        texts = [kind.request(rng, unseen=True) for _ in range(n)]
        found[kind.model] = sum(int(shares_of(model, tokenizer, text).argmax()) == at for text in texts) / n
    return found


def main() -> None:
    args = arguments(800, "router", __doc__)
    seeded(args.seed)
    rng = random.Random(args.seed)
    tokenizer, model = build_tokenizer(args.seed), build_model()

    fit(model, lambda step: routing_loss(model, batch(tokenizer, rows(rng))), args.steps, 3e-3)
    save(model, tokenizer, args.out, f"python -m scripts.train_router --steps {args.steps} --seed {args.seed}")
    print("accuracy on unseen requests:", accuracy(model, tokenizer, args.seed + 1))
    for text in ("小猫跑了一天，它很", "7+5=", "What is gravity?", "Привет, как дела?", "안녕하세요", "Καλημέρα"):
        print(text, [round(share, 3) for share in shares_of(model, tokenizer, text).tolist()])


if __name__ == "__main__":
    main()
