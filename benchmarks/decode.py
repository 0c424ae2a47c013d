"""Does recording cost anything? Decode and prefill with everything recorded, against loops that record less.

    python -m benchmarks.decode [--rounds 5]

The loop is held against the shortest one there is, `generate()` alone, `generate()` that hands out attentions and
logits, and the most that this machine could decode if it only read. Every figure is a ratio of medians from one run in
which the contestants take turns; the probe of the memory follows them. The last line is a JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from benchmarks.measure import argmax, bare_loop, generate_loop, interleaved, machine, shortest_draw
from inference import GenerationRequest, RecordOptions, SamplingParams, record
from inference.conversion import converted
from inference.device_probe import costs, probe_device
from inference.engine import generate
from inference.models import LoadedModel, load_model
from inference.roofline import Costs, Device
from inference.sources import find

N_NEW = 64
LONG = 2000
GREEDY = SamplingParams(greedy=True)
SAMPLED = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=42)
SHORTEST = shortest_draw(SAMPLED.temperature, SAMPLED.top_k, SAMPLED.top_p)
HF_SAMPLED = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.95}
HF_RECORDS = {"output_attentions": True, "output_logits": True, "return_dict_in_generate": True}


@dataclass(frozen=True, slots=True)
class Contestants:
    """One model three ways: for the recorded loop, with SDPA, and with eager attention, which alone has weights."""

    model: LoadedModel
    plain: PreTrainedModel
    eager: PreTrainedModel

    @classmethod
    def of(cls, model: LoadedModel, folder: str | Path) -> Contestants:
        """A loaded model beside transformers' own two of the same checkpoint, which never end a text."""
        own = [
            AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
            for attention in ("sdpa", "eager")
        ]
        for one in own:
            one.generation_config.eos_token_id = None
        return cls(model, *own)


def main() -> None:
    """Run the contests and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    wide = wide_vocabulary(rounds)
    them = Contestants.of(load_model("smollm2-135m", device="cpu"), embedded_folder())
    prompt = generate(them.model, GenerationRequest(prompt="What is gravity?", chat=True)).prompt_ids.tolist()
    results = {
        "machine": machine(),
        "decode_greedy": decode(them, prompt, GREEDY, {"do_sample": False}, rounds),
        "decode_sampled_49152": decode(them, prompt, SAMPLED, HF_SAMPLED, rounds),
        "decode_sampled_262144": wide,
        "prefill_2000": prefill(them, rounds),
    }
    for name, figures in results.items():
        sys.stderr.write(f"{name}: {figures}\n")
    print(json.dumps(results))


def embedded_folder() -> Path:
    """Where the embedded model lies, converted."""
    return converted(find("smollm2-135m").path, lambda _: None)


def decode(
    them: Contestants, prompt: list[int], sampling: SamplingParams, settings: Mapping[str, object], rounds: int
) -> dict[str, float]:
    """tok/s of every contestant and at the limit of the memory; and what the recorded loop's are of each."""
    ids, found = torch.tensor([prompt]), costs(them.model)
    speeds = interleaved(
        {
            "bare": lambda: bare_loop(them.plain, ids, N_NEW, argmax if sampling.greedy else SHORTEST),
            "generate": lambda: generate_loop(them.plain, ids, N_NEW, **settings),
            "generate_attentions": lambda: generate_loop(them.eager, ids, N_NEW, **settings, **HF_RECORDS),
            "recorded": lambda: recorded(them.model, prompt, sampling),
        },
        rounds,
    )
    # after the others: what the probe reads drives all else out of the caches
    speeds["limit"] = limit_tok_s(found, probed(them.model), len(prompt), N_NEW)
    return {f"{name}_tok_s": speed for name, speed in speeds.items()} | ratios(speeds, "recorded")


def ratios(values: Mapping[str, float], of: str) -> dict[str, float]:
    """What one value is of each of the others: `{"recorded_to_bare": 1.1}`."""
    return {f"{of}_to_{name}": values[of] / value for name, value in values.items() if name != of}


def limit_tok_s(found: Costs, device: Device, n_prompt: int, n_new: int) -> float:
    """Decode tok/s where each step takes no longer than reading all weights and its cache once."""
    reading = replace(device, flops=None)
    return (n_new - 1) / sum(found.decode(n_prompt + i).seconds(reading) for i in range(1, n_new))


def probed(model: LoadedModel) -> Device:
    """The device as its probe finds it now."""
    device = probe_device(model, lambda: False, time.perf_counter)
    assert device is not None
    return device


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
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(embedded_folder()).save_pretrained(folder)
        them = Contestants.of(load_model(folder, device="cpu"), folder)
    return decode(them, list(range(34)), SAMPLED, HF_SAMPLED, rounds)


def prefill(them: Contestants, rounds: int) -> dict[str, float]:
    """Seconds to prefill 2,000 tokens, recorded and bare, and the MiB of the record against eager attentions."""
    prompt = list(range(1000, 1000 + LONG))
    ids = torch.tensor([prompt])
    request = GenerationRequest(prompt_ids=tuple(prompt), max_new_tokens=1, sampling=GREEDY)

    def bare() -> float:
        began = time.perf_counter()
        with torch.inference_mode():
            them.plain(input_ids=ids, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - began

    def with_record() -> float:
        with generate(them.model, request) as run:
            began = time.perf_counter()
            next(run)
            return time.perf_counter() - began

    seconds = interleaved({"bare": bare, "recorded": with_record}, rounds)
    facts, trace = them.model.facts, record(them.model, request)
    sizes = {"trace": trace.nbytes, "eager_attentions": facts.n_layers * facts.n_heads * LONG * LONG * 4}
    return (
        {f"{name}_s": value for name, value in seconds.items()}
        | {f"{name}_mib": value / 2**20 for name, value in sizes.items()}
        | ratios(seconds, "recorded")
        | ratios(sizes, "trace")
    )


if __name__ == "__main__":
    main()
