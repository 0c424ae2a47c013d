"""The command line: `python -m inference record | show | models | memory`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from inference import cli_memory
from inference.catalogue import default, entries
from inference.errors import InferenceError
from inference.request import GenerationRequest, RecordOptions
from inference.sampling import SamplingParams
from inference.trace import Trace


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, or 1 with the reason on standard error."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except InferenceError as error:
        sys.stderr.write(f"{error}\n")
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}: {error.filename or ''}\n")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m inference", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_record(commands.add_parser("record", help="run a prompt and write a run file"))
    show = commands.add_parser("show", help="print the step table of a run file")
    show.add_argument("file", type=Path)
    show.add_argument("--export", type=Path, help="also write the table, as .csv or .parquet")
    show.set_defaults(run=_show)
    models = commands.add_parser("models", help="list the catalogue with what is installed")
    models.set_defaults(run=_models)
    cli_memory.add_parser(commands)
    return parser


def _add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=default().id, help="catalogue id, folder, .gguf file or hub id")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--chat", action="store_true", help="put the prompt through the chat template")
    parser.add_argument("--system", help="system message for the chat template")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="stop string; may be repeated")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--greedy", action="store_true", default=None)
    for name, kind in SAMPLING.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    parser.add_argument("--prefill-chunk", type=int)
    parser.add_argument("--keep-logits", default="all", metavar="all|none|N", help="whole vocabulary, or the N highest")
    parser.add_argument("--keep-attention", default="all", metavar="all|none|0,7,…", help="layers to keep")
    parser.add_argument("--no-hidden", action="store_true", help="leave hidden states out")
    parser.add_argument("--lens", action="store_true", help="add the logit lens when the run has ended")
    parser.add_argument("--max-trace-mib", type=float, default=512)
    parser.set_defaults(run=_record)


SAMPLING = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "seed": int,
}


def _record(args: argparse.Namespace) -> int:
    from inference.engine import generate
    from inference.models import load_model

    sampling = SamplingParams(greedy=args.greedy, **{name: getattr(args, name) for name in SAMPLING})
    request = GenerationRequest(
        prompt=args.prompt,
        chat=args.chat,
        system=args.system,
        max_new_tokens=args.max_new_tokens,
        sampling=sampling,
        stop_strings=tuple(args.stop),
        prefill_chunk=args.prefill_chunk,
        record=_options(args),
    )
    model = load_model(args.model, args.device, args.dtype, progress=lambda text: _say(text))
    with generate(model, request) as run:
        try:
            for step in run:
                sys.stdout.write(step.text)
                sys.stdout.flush()
        except KeyboardInterrupt:
            run.close()
        trace = run.trace()
    trace.save(args.out)
    size = args.out.stat().st_size / 2**20
    sys.stdout.write("\n")
    _say(f"{len(trace.steps)} tokens, ended by {_finish(trace)}; {size:.2f} MiB in {args.out}")
    for note in trace.left_out:
        _say(str(note))
    return 0


def _options(args: argparse.Namespace) -> RecordOptions:
    logits = {"all": True, "none": False}.get(args.keep_logits)
    attention = {"all": True, "none": False}.get(args.keep_attention)
    try:
        return RecordOptions(
            logits=int(args.keep_logits) if logits is None else logits,
            attention=tuple(int(i) for i in args.keep_attention.split(",")) if attention is None else attention,
            hidden=not args.no_hidden,
            lens=args.lens,
            max_trace_bytes=int(args.max_trace_mib * 2**20),
        )
    except ValueError:
        raise InferenceError(
            "--keep-logits takes all, none or a number; --keep-attention all, none or layer numbers."
        ) from None


def _show(args: argparse.Namespace) -> int:
    from inference.table import write

    trace = Trace.load(args.file)
    columns = [
        "step",
        "phase",
        "token_id",
        "token",
        "raw_prob",
        "prob",
        "rank",
        "raw_entropy",
        "kv_bytes",
        "forward_s",
    ]
    _say(f"{trace.model.name} · {trace.n_prompt} prompt tokens · {len(trace.steps)} new · ended by {_finish(trace)}")
    if trace.steps:
        sys.stdout.write(trace.table()[columns].to_string(index=False, float_format=lambda x: f"{x:.4f}") + "\n")
    for note in trace.left_out:
        _say(str(note))
    if args.export:
        write(trace, args.export)
    return 0


def _models(args: argparse.Namespace) -> int:
    for entry in entries().values():
        there = "installed" if entry.installed else "on the hub" if entry.hub else "not installed"
        size = f"{entry.n_params / 1e6:,.0f} M"
        sys.stdout.write(f"{entry.id:<16}{size:>10}  {there:<14}{entry.name} ({entry.license})\n")
    return 0


def _finish(trace: Trace) -> str:
    finish = trace.finish
    detail = finish.text if finish.token_id is None else f"token {finish.token_id}"
    return f"{finish.reason} ({detail!r})" if detail else finish.reason


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
