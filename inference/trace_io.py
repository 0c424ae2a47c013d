"""One run, one file: safetensors with a JSON header, versioned; opens without torch and without the model.

Nothing in the file is executed or unpickled. Everything read from it is checked before it is used, so that a damaged
or hostile file ends in a `TraceFileError` that says what is wrong.

Layout: the header's `inferoscope` entry holds what is small as JSON; tensors hold one row a step (`steps/…`) or a fed
position (`queries/3`, `keys/3`, `spans/0`, …). `trace_write` and `trace_read` fill in and check the parts.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from inference.errors import N_, InferenceError, TraceFileError
from inference.trace import Trace
from inference.trace_read import Reader
from inference.trace_write import VERSION, parts

KEY = "inferoscope"
MAX_FILE_BYTES = 8 * 2**30
MAX_HEADER_BYTES = 64 * 2**20


def save(trace: Trace, path: str | Path) -> None:
    """Write a run to one file; an existing one is replaced only when the new one is whole."""
    path = Path(path)
    fresh = path.with_name(f".{path.name}.partial")
    fresh.write_bytes(dump(trace))
    fresh.replace(path)


def dump(trace: Trace) -> bytes:
    """A run as the bytes of its file."""
    header, tensors = parts(trace)
    return bytes(save_tensors(tensors, metadata={KEY: json.dumps(header, ensure_ascii=False)}))


def load(source: str | Path | bytes) -> Trace:
    """Open a run file, or its bytes.

    Raises:
        TraceFileError: it is no run file, is damaged or cut short, was written by a newer version, or is absurdly
            large; the message says which.
    """
    data = source if isinstance(source, bytes) else _read(Path(source))
    header = _read_header(data)
    try:
        return Reader(header, load_tensors(data)).trace()
    except (
        SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
    ) as error:
        raise _damaged(str(error) or type(error).__name__) from None
    except InferenceError as error:
        raise error if isinstance(error, TraceFileError) else _damaged(str(error)) from None


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise TraceFileError(
            N_("The file is {size:.1f} GiB; a run file has at most {limit:.0f} GiB."),
            size=size / 2**30,
            limit=MAX_FILE_BYTES / 2**30,
        )
    return path.read_bytes()


def _read_header(data: bytes) -> dict[str, Any]:
    if len(data) < 10:
        raise TraceFileError(N_("This is not a run file: it has only {n} bytes."), n=len(data))
    (length,) = struct.unpack("<Q", data[:8])
    if data[8:9] != b"{" or length > MAX_HEADER_BYTES:
        raise TraceFileError(
            N_("This is not a run file."),
            N_("Choose a .safetensors file that was saved by this app or its command line."),
        )
    if length > len(data) - 8:
        raise _damaged("it ends inside its header")
    try:
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        header = json.loads(metadata[KEY])
        version = int(header["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TraceFileError(
            N_("This safetensors file holds no run."),
            N_("Choose a file that was saved by this app or its command line."),
        ) from None
    if version > VERSION:
        raise TraceFileError(
            N_("The run file has format {version}; this version reads up to format {limit}."),
            N_("Update the app to open it."),
            version=version,
            limit=VERSION,
        )
    return dict(header)


def _damaged(reason: str) -> TraceFileError:
    return TraceFileError(N_("The run file is damaged: {reason}."), N_("Save or copy it again."), reason=reason)
