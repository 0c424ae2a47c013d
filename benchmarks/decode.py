"""Does recording cost anything? Decode and prefill with everything recorded, against loops that record nothing.

    python -m benchmarks.decode [--rounds 5]

Every figure is a ratio of medians from one run in which the contestants take turns. The last line is a JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from benchmarks.measure import argmax, bare_loop, generate_loop, interleaved, machine, shortest_draw
from inference import GenerationRequest, RecordOptions, SamplingParams
from inference.conversion import converted
from inference.engine import generate
from inference.models import LoadedModel, load_model
from inference.sources import find

N_NEW = 64
LONG = 2000
GREEDY = SamplingParams(greedy=True)
SAMPLED = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=42)
SHORTEST = shortest_draw(SAMPLED.temperature, SAMPLED.top_k, SAMPLED.top_p)
HF_SAMPLED = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.95}


def main() -> None:
    """Run the contests and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    wide = wide_vocabulary(rounds)
    model = load_model("smollm2-135m", device="cpu")
    plain = AutoModelForCausalLM.from_pretrained(embedded_folder(), dtype=torch.float32).eval()
    prompt = generate(model, GenerationRequest(prompt="What is gravity?", chat=True)).prompt_ids.tolist()
    results = {
        "machine": machine(),
        "decode_greedy": decode(model, plain, prompt, GREEDY, {"do_sample": False}, rounds),
        "decode_sampled_49152": decode(model, plain, prompt, SAMPLED, HF_SAMPLED, rounds),
        "decode_sampled_262144": wide,
        "prefill_2000": prefill(model, plain, rounds),
    }
    for name, figures in results.items():
        sys.stderr.write(f"{name}: {figures}\n")
    print(json.dumps(results))


def embedded_folder() -> Path:
    """Where the embedded model lies, converted."""
    return converted(find("smollm2-135m").path, lambda _: None)


def decode(
    model: LoadedModel, plain: PreTrainedModel, prompt: list[int], sampling: SamplingParams, settings: dict, rounds: int
) -> dict[str, float]:
    """tok/s recorded, of `generate()`, and of the bare loop; and the two ratios."""
    ids = torch.tensor([prompt])
    plain.generation_config.eos_token_id = None
    speeds = interleaved(
        {
            "generate_tok_s": lambda: generate_loop(plain, ids, N_NEW, **settings),
            "bare_tok_s": lambda: bare_loop(plain, ids, N_NEW, argmax if sampling.greedy else SHORTEST),
            "recorded_tok_s": lambda: recorded(model, prompt, sampling),
        },
        rounds,
    )
    return speeds | {
        "recorded_to_generate": speeds["recorded_tok_s"] / speeds["generate_tok_s"],
        "recorded_to_bare": speeds["recorded_tok_s"] / speeds["bare_tok_s"],
    }


def recorded(model: LoadedModel, prompt: list[int], sampling: SamplingParams) -> float:
    """Decode tok/s of the instrumented loop with everything recorded."""
    request = GenerationRequest(
        prompt_ids=tuple(prompt), max_new_tokens=N_NEW, sampling=sampling, ignore_eos=True, record=RecordOptions()
    )
    with generate(model, request) as run:
        next(run)
        began = time.perf_counter()
        for _ in run:
            pass
        return (N_NEW - 1) / (time.perf_counter() - began)


def wide_vocabulary(rounds: int) -> dict[str, float]:
    """The sampled contest on a tiny model with 262,144 tokens, where choosing is most of the work."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=262_144, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, initializer_range=0.3, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    plain = LlamaForCausalLM(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        plain.save_pretrained(folder)
        AutoTokenizer.from_pretrained(embedded_folder()).save_pretrained(folder)
        model = load_model(folder, device="cpu")
    return decode(model, plain, list(range(34)), SAMPLED, HF_SAMPLED, rounds)


def prefill(model: LoadedModel, plain: PreTrainedModel, rounds: int) -> dict[str, float]:
    """Seconds to prefill 2,000 tokens, recorded and bare, and the MiB of the record against eager attentions."""
    prompt = list(range(1000, 1000 + LONG))
    ids = torch.tensor([prompt])

    def bare() -> float:
        began = time.perf_counter()
        with torch.inference_mode():
            plain(input_ids=ids, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - began

    def with_record() -> float:
        request = GenerationRequest(prompt_ids=tuple(prompt), max_new_tokens=1, sampling=GREEDY)
        with generate(model, request) as run:
            began = time.perf_counter()
            next(run)
            return time.perf_counter() - began

    seconds = interleaved({"bare_s": bare, "recorded_s": with_record}, rounds)
    with generate(model, GenerationRequest(prompt_ids=tuple(prompt), max_new_tokens=1, sampling=GREEDY)) as run:
        next(run)
        mib = run.trace().nbytes / 2**20
    facts = model.facts
    return seconds | {
        "recorded_to_bare": seconds["recorded_s"] / seconds["bare_s"],
        "trace_mib": mib,
        "eager_attentions_mib": facts.n_layers * facts.n_heads * LONG * LONG * 4 / 2**20,
    }


if __name__ == "__main__":
    main()
