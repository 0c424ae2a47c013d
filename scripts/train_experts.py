"""Train the experts model: a tiny Mixtral whose gates tell four kinds of text apart.

    python -m scripts.train_experts

Sums, English, Chinese and code come from four small grammars below. Two terms are added to the loss of predicting
the next token: the usual balancing loss (https://arxiv.org/abs/2101.03961, section 2.2), which keeps every expert in
use, and a reward for gates that differ by kind, without which this small model separates the kinds only by half.
When it runs, nothing tells the model which kind a text is. The script ends with how far the gates went, measured on
texts that were not trained on; see `specialisation`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor
from transformers import MixtralConfig, MixtralForCausalLM

from scripts.teaching import BOS, EOS, UNK, arguments, byte_level, fit, save, seeded

BOS_ID, EOS_ID = 1, 2
VOCAB, LENGTH = 768, 48
N_EXPERTS, N_CHOSEN = 8, 2
ROWS = 2  # of each kind in a batch, and as many again, twice, of mixed text
TELLING = 0.1  # weight of the reward
IGNORED = -100
Kind = Callable[[random.Random], str]

PEOPLE = ("Anna", "Tom", "my sister", "the teacher", "an old man", "our neighbour", "the baker", "a young girl")
ACTIONS = ("finds", "carries", "paints", "buys", "remembers", "watches", "brings", "cleans")
THINGS = ("a red bicycle", "the small boat", "some bread", "an open window", "a letter", "two apples")
PLACES = ("near the river", "in the kitchen", "behind the school", "at the market", "under the bridge")
TIMES = ("in the morning", "after lunch", "every day", "before the rain", "in winter", "when the sun is out")
WHO = ("小猫", "小狗", "妈妈", "老师", "爷爷", "弟弟", "邻居", "医生")
WHEN = ("今天", "昨天", "早上", "晚上", "下雨的时候", "春天", "每个星期")
WHERE = ("在公园里", "在河边", "在厨房", "在学校后面", "在山上", "在图书馆")
DOES = ("看书", "唱歌", "跑步", "做饭", "喝茶", "画画", "种花", "等朋友")
FEELS = ("很高兴", "有一点累", "觉得很安静", "不想回家", "忘了时间")
NAMES = ("total", "count", "items", "value", "result", "index", "data", "name", "left", "right")
CALLS = ("len", "sum", "max", "min", "sorted", "list", "abs")


def sums(rng: random.Random) -> str:
    """A line of arithmetic that is right."""
    a, b, sign = rng.randrange(10), rng.randrange(10), rng.choice("+-*")
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    return f"{a}{sign}{b}={result}\n"


def english(rng: random.Random) -> str:
    """A plain sentence."""
    who, does, what = rng.choice(PEOPLE), rng.choice(ACTIONS), rng.choice(THINGS)
    start = who[0].upper() + who[1:]
    return f"{start} {does} {what} {rng.choice(PLACES)} {rng.choice(TIMES)}. "


def chinese(rng: random.Random) -> str:
    """A plain sentence."""
    who = rng.choice(WHO)
    feels = f"，{rng.choice(FEELS)}" if rng.random() < 0.5 else ""
    return f"{rng.choice(WHEN)}{who}{rng.choice(WHERE)}{rng.choice(DOES)}{feels}。"


def code(rng: random.Random) -> str:
    """A few lines of Python."""
    a, b, call = rng.choice(NAMES), rng.choice(NAMES), rng.choice(CALLS)
    return rng.choice(
        (
            f"def get_{a}({b}):\n    return {call}({b})\n",
            f"for {a} in {call}({b}):\n    print({a})\n",
            f"if {a} is None:\n    {a} = {call}({b})\n",
            f"while {a} < {call}({b}):\n    {a} += 1\n",
            f"import {a}\nclass {b.title()}:\n    pass\n",
            f'{a} = {{"{b}": {call}({a})}}\n',
        )
    )


KINDS: dict[str, Kind] = {"sums": sums, "English": english, "Chinese": chinese, "code": code}


def mixed(rng: random.Random) -> str:
    """A sentence or line of any kind."""
    return rng.choice(list(KINDS.values()))(rng)


def text_of(kind: Kind, rng: random.Random, n_characters: int = 160) -> str:
    """Sentences or lines of one kind, of about so many characters."""
    text = ""
    while len(text) < n_characters:
        text += kind(rng)
    return text


def build_tokenizer(seed: int) -> Tokenizer:
    """Byte-level BPE learnt from the four kinds; digits stay single."""
    rng = random.Random(seed)
    texts = [text_of(kind, rng) for kind in KINDS.values() for _ in range(200)]
    tokenizer = byte_level(texts, (UNK, BOS, EOS), VOCAB)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, BOS_ID)]
    )
    return tokenizer


def build_model() -> MixtralForCausalLM:
    """Three layers of eight experts, two a token."""
    config = MixtralConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=N_EXPERTS,
        num_experts_per_tok=N_CHOSEN,
        router_aux_loss_coef=0.02,
        output_router_logits=True,
        max_position_embeddings=512,
        sliding_window=None,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=None,
        tie_word_embeddings=True,
    )
    return MixtralForCausalLM(config)


def rows(tokenizer: Tokenizer, kind: Kind, rng: random.Random, n: int) -> Tensor:
    """[n, LENGTH] token ids of texts of one kind."""
    return torch.tensor([tokenizer.encode(text_of(kind, rng, 8 * LENGTH)).ids[:LENGTH] for _ in range(n)])


def telling(router_logits: tuple[Tensor, ...]) -> Tensor:
    """Mutual information of kind and expert in nats, by the mean gates of the rows of one kind; the layers' mean."""
    n = len(KINDS) * ROWS
    found = []
    for logits in router_logits:
        gates = torch.softmax(logits, -1).view(-1, LENGTH, N_EXPERTS)[:n].reshape(len(KINDS), -1, N_EXPERTS).mean(1)
        found.append(entropy(gates.mean(0)) - entropy(gates).mean())
    return torch.stack(found).mean()


def entropy(shares: Tensor) -> Tensor:
    """Nats, over the last dimension."""
    return -(shares * shares.clamp_min(1e-9).log()).sum(-1)


def loads(model: MixtralForCausalLM, ids: Tensor) -> Tensor:
    """[L, E] share of the choices that each expert gets, `<bos>` left out."""
    with torch.no_grad():
        logits = model(ids, output_router_logits=True).router_logits
    chosen = [layer.view(*ids.shape, -1)[:, 1:].topk(N_CHOSEN).indices.flatten() for layer in logits]
    return torch.stack([torch.bincount(c, minlength=N_EXPERTS) / len(c) for c in chosen])


def specialisation(model: MixtralForCausalLM, tokenizer: Tokenizer, seed: int) -> Tensor:
    """[L] mean over the pairs of kinds of the total variation distance between their expert loads.

    0: every kind goes to the same experts in the same shares. 1: no two kinds share an expert.
    """
    rng = random.Random(seed)
    by_kind = [loads(model, rows(tokenizer, kind, rng, 8)) for kind in KINDS.values()]
    return torch.stack([(a - b).abs().sum(-1) / 2 for a, b in combinations(by_kind, 2)]).mean(0)


def batch_loss(model: MixtralForCausalLM, tokenizer: Tokenizer, rng: random.Random) -> Tensor:
    """Loss of a new batch: some rows of each kind, then as many again, twice, of mixed text."""
    ids = torch.cat([rows(tokenizer, kind, rng, ROWS) for kind in (*KINDS.values(), mixed, mixed)])
    out = model(ids, labels=ids)
    loss: Tensor = out.loss - TELLING * telling(out.router_logits)
    return loss


def main() -> None:
    args = arguments(700, "experts", __doc__)
    seeded(args.seed)
    rng = random.Random(args.seed)
    tokenizer, model = build_tokenizer(args.seed), build_model()

    fit(model, lambda step: batch_loss(model, tokenizer, rng), args.steps, 3e-3)
    model.config.output_router_logits = False
    save(model, tokenizer, args.out, f"python -m scripts.train_experts --steps {args.steps} --seed {args.seed}")
    reached = specialisation(model, tokenizer, args.seed + 1)
    print("specialisation by layer:", [round(x, 3) for x in reached.tolist()])
    for name, kind in KINDS.items():
        print(
            f"{name:8s}", [[round(x, 2) for x in row] for row in loads(model, rows(tokenizer, kind, rng, 8)).tolist()]
        )


if __name__ == "__main__":
    main()
