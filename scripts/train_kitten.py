"""Train the kitten model: a tiny Llama that has learnt a small Chinese grammar, and nothing else.

    python -m scripts.train_kitten

The grammar says who did what for how long, and how the one who did it is now: `小猫跑了一天，它很累。`. It is small
enough that every sentence is written out, so each step trains on the whole grammar, weighted by its probabilities;
the pronoun depends on who, the state on what and how long.
"""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from scripts.teaching import BOS, EOS, UNK, arguments, fit, save, seeded

BOS_ID, EOS_ID = 1, 2
VOCABULARY = (
    UNK, BOS, EOS, "小狗", "小鸟", "女孩", "她", "睡", "吃", "玩", "小猫", "跑", "了", "一天", "，", "它", "很", "累",
    "。", "困", "饿", "渴", "开心", "饱", "精神", "一会儿", "要", "喝水", "东西", "休息", "男孩", "他",
)  # fmt: skip
PRONOUN = {"小猫": "它", "小狗": "它", "小鸟": "它", "女孩": "她", "男孩": "他"}
STATES = {
    ("跑", "一天"): {"累": 0.6, "困": 0.2, "饿": 0.1, "渴": 0.06, "开心": 0.04},
    ("跑", "一会儿"): {"渴": 0.5, "累": 0.25, "开心": 0.25},
    ("玩", "一天"): {"困": 0.5, "饿": 0.3, "累": 0.2},
    ("玩", "一会儿"): {"开心": 0.8, "渴": 0.2},
    ("睡", "一天"): {"饿": 0.7, "精神": 0.3},
    ("睡", "一会儿"): {"精神": 0.6, "困": 0.4},
    ("吃", "一天"): {"饱": 0.7, "困": 0.3},
    ("吃", "一会儿"): {"饱": 0.5, "渴": 0.3, "开心": 0.2},
}
# a wish follows some states, three times in four
WISHES = {"困": ("睡",), "饿": ("吃", "东西"), "渴": ("喝水",)}
WISH = 0.75
IGNORED = -100

Sentence = tuple[tuple[str, ...], float]


def grammar() -> list[Sentence]:
    """Every sentence of the grammar, as words, with its probability."""
    sentences: list[Sentence] = []
    for who, pronoun in PRONOUN.items():
        for (verb, time), states in STATES.items():
            base = 1 / len(PRONOUN) / len(STATES)
            for state, share in states.items():
                words = (who, verb, "了", time, "，", pronoun, "很", state)
                wish = WISH if state in WISHES else 0.0
                sentences.append(((*words, "。"), base * share * (1 - wish)))
                if wish:
                    sentences.append(((*words, "，", pronoun, "要", *WISHES[state], "。"), base * share * wish))
    return sentences


def build_tokenizer() -> Tokenizer:
    """One token a word; the likeliest cut of a text is the one with the fewest words."""
    tokenizer = Tokenizer(models.Unigram([(word, -1.0) for word in VOCABULARY], unk_id=0))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([UNK, BOS, EOS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, BOS_ID)]
    )
    return tokenizer


def build_model() -> LlamaForCausalLM:
    """Three layers, four query heads that share two key-value heads."""
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def tensors(tokenizer: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [S, T], targets [S, T] with the padding ignored, and weights [S] of the S sentences."""
    sentences = grammar()
    ids = [[*tokenizer.encode("".join(words)).ids, EOS_ID] for words, _ in sentences]
    longest = max(map(len, ids))
    inputs = torch.tensor([row + [EOS_ID] * (longest - len(row)) for row in ids])
    targets = torch.tensor([row[1:] + [IGNORED] * (longest - len(row)) for row in ids])
    return inputs[:, :-1], targets, torch.tensor([weight for _, weight in sentences])


def grammar_loss(model: LlamaForCausalLM, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Expected nats a sentence."""
    logits = model(inputs).logits.transpose(1, 2)
    losses = torch.nn.functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
    return (losses.sum(1) * weights).sum()


def main() -> None:
    args = arguments(400, "kitten", __doc__)
    seeded(args.seed)
    tokenizer, model = build_tokenizer(), build_model()
    inputs, targets, weights = tensors(tokenizer)

    fit(model, lambda step: grammar_loss(model, inputs, targets, weights), args.steps, 4e-3)
    save(model, tokenizer, args.out, f"python -m scripts.train_kitten --steps {args.steps} --seed {args.seed}")
    prompt = tokenizer.encode("小猫跑了一天，它很")
    probs = torch.softmax(model(torch.tensor([prompt.ids])).logits[0, -1], -1)
    print({VOCABULARY[i]: round(p, 4) for p, i in zip(*(x.tolist() for x in probs.topk(6)), strict=True)})


if __name__ == "__main__":
    main()
