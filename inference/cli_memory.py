"""The command `python -m inference memory`: what a model's KV cache takes, and what engines really hold."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from inference.elements import ELEMENT_TYPES
from inference.kv_engines import EngineBytes
from inference.kv_memory import KVLayout

UNITS = (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("KB", 10**3), ("MB", 10**6), ("GB", 10**9))


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command `memory` to the command line's parsers."""
    parser = subparsers.add_parser("memory", help="size the KV cache of a model from its config")
    parser.add_argument("--config", type=Path, required=True, help="config.json, or a folder that has one")
    parser.add_argument("--tokens", type=_lengths, default=[8192], help="positions a sequence, or a list: 100,4096,7")
    parser.add_argument("--batch", type=int, default=1, help="sequences of that one length")
    parser.add_argument("--encoder-tokens", type=int, default=0, help="positions of an encoder")
    parser.add_argument(
        "--element",
        type=_element,
        default="float16",
        help=f"{', '.join(ELEMENT_TYPES)}; two with a comma are for keys and for values",
    )
    parser.add_argument("--page-size", type=int, help="round each sequence up to whole pages of so many positions")
    parser.add_argument("--capacity", type=int, help="positions a sequence that static caches reserve")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel devices; the figures are for one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the figures; returns the exit status 0.

    Raises:
        CalculatorError: the config or an argument cannot be used.
    """
    whole_model = KVLayout.from_file(args.config)
    layout = whole_model.shard(args.tp)
    tokens = args.tokens if len(args.tokens) > 1 else args.tokens[0]
    wanted = {"batch": args.batch, "element": args.element, "encoder_tokens": args.encoder_tokens}
    held = layout.bytes(tokens, **wanted, page_size=args.page_size)
    formula = layout.formula(tokens, **wanted, page_size=args.page_size)
    engines = whole_model.engine_bytes(
        tokens,
        **wanted,
        capacity=args.capacity,
        page_size=args.page_size or 16,
        tensor_parallel=args.tp,
    )
    lines = [_model(whole_model), *_logical(layout, args), f"KV cache: {sizes(held)}", f"  {formula}"]
    lines += ["Held by engines:", *(_engine(name, figure) for name, figure in engines.items())]
    lines += [f"Note: {note}" for note in whole_model.assumptions]
    if whole_model.max_context is not None and max(args.tokens) > whole_model.max_context:
        lines.append(f"Note: the model's own limit is {whole_model.max_context:,} tokens.")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def sizes(n_bytes: int) -> str:
    """A number of bytes, and the same in binary and decimal units, those of which it is at least a hundredth."""
    units = ", ".join(f"{_decimal(n_bytes / size)} {unit}" for unit, size in UNITS if n_bytes * 100 >= size)
    return f"{n_bytes:,} bytes ({units})"


def _decimal(number: float) -> str:
    return f"{number:,.3f}".rstrip("0").rstrip(".")


def _model(layout: KVLayout) -> str:
    kinds = Counter(layer.kind for layer in layout.layers)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"Model: {layout.model_type or 'unnamed'}, {layout.attention or 'layers'}: {counted}"


def _logical(layout: KVLayout, args: argparse.Namespace) -> list[str]:
    lines = [f"On each of {args.tp} devices:"] if args.tp > 1 else []
    lines.append(f"Per token: {sizes(layout.bytes_per_token(args.element))}")
    beyond = layout.bytes_per_token(args.element, after=max(args.tokens))
    if beyond != layout.bytes_per_token(args.element):
        lines.append(f"  at this length, where windows are full: {sizes(beyond)}")
    if layout.state_bytes(args.element):
        lines.append(f"Constant state a sequence: {sizes(layout.state_bytes(args.element))}")
    if layout.bytes_per_encoder_token(args.element):
        lines.append(f"Per encoder token: {sizes(layout.bytes_per_encoder_token(args.element))}")
    return lines


def _engine(name: str, figure: EngineBytes) -> str:
    amount = "-" if figure.bytes is None else sizes(figure.bytes)
    return f"  {name}: {amount}\n    {figure.note}"


def _lengths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        message = f"{text!r} is not a whole number or a list of them with commas"
        raise argparse.ArgumentTypeError(message) from None


def _element(text: str) -> str | tuple[str, ...]:
    parts = tuple(text.split(","))
    return parts[0] if len(parts) == 1 else parts
