"""What the scripts that train the teaching models share: the training loop, and a model's folder with its checksums."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

MODELS = Path(__file__).resolve().parent.parent / "assets" / "models"
UNK, BOS, EOS = "<unk>", "<bos>", "<eos>"
WARM_UP = 20
LOG_EVERY = 50


def arguments(steps: int, name: str, description: str | None) -> argparse.Namespace:
    """`--steps`, `--seed` and `--out` of a training script."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=MODELS / name)
    return parser.parse_args()


def byte_level(texts: Iterable[str], special: Sequence[str], size: int) -> Tokenizer:
    """Byte-level BPE of `size` tokens learnt from texts, the special ones first; digits stay single."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def seeded(seed: int) -> None:
    """One thread and one seed: the order of every sum is the same each time."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    disable_progress_bar()


def fit(model: PreTrainedModel, loss_at: Callable[[int], Tensor], steps: int, rate: float) -> float:
    """Train with Adam, a short warm-up and a cosine down to zero; the last loss."""
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimiser,
        [
            torch.optim.lr_scheduler.LinearLR(optimiser, 0.05, total_iters=WARM_UP),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps - WARM_UP, 1)),
        ],
        [WARM_UP],
    )
    model.train()
    loss = torch.zeros(())
    for step in range(steps):
        loss = loss_at(step)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % LOG_EVERY == 0:
            print(f"step {step:5d}  loss {loss.item():.4f}", flush=True)
    model.eval()
    return loss.item()


def save(model: PreTrainedModel, tokenizer: Tokenizer, folder: Path, command: str) -> None:
    """Write weights, config and tokenizer, and the checksum of every file with the command that made them."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNK, bos_token=BOS, eos_token=EOS)
    wrapped.save_pretrained(folder)
    sums = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.name != "made.json"
    }
    made = {"command": command, "torch": torch.__version__.split("+")[0], "sha256": sums}
    (folder / "made.json").write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
