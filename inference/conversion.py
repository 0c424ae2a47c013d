"""A cache of converted checkpoints: atomic, checksummed, safe when two processes start together.

A GGUF file takes some 20 s to load, the same weights as safetensors a third of a second, so each is converted once.
The manifest beside the converted files holds their SHA-256, size and time of change: while size and time are as
noted the checksum need not be read again (half a gigabyte takes longer to hash than to load); where they differ it is,
and a file that does not match is converted anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

FORMAT = 2  # raise it when what `convert` writes changes
MANIFEST = "manifest.json"


def cache_root() -> Path:
    """Where converted models lie: `INFEROSCOPE_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("INFEROSCOPE_CACHE") or user_cache_path("inferoscope")) / "models"


def converted(source: Path, convert: Callable[[Path], None]) -> Path:
    """The folder with the converted form of `source`, made by `convert(folder)` if it is not there or is damaged.

    A second process waits for the first; a half-made folder is never seen.
    """
    target = cache_root() / f"{source.stem}-{_identity(source)}"
    if _intact(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not _intact(target):
            _make(target, convert)
    return target


def _make(target: Path, convert: Callable[[Path], None]) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        convert(fresh)
        _write_manifest(fresh)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _identity(source: Path) -> str:
    stat = source.stat()
    return hashlib.sha256(f"{FORMAT}|{source.name}|{stat.st_size}|{_sha256(source, 2**20)}".encode()).hexdigest()[:16]


def _write_manifest(folder: Path) -> None:
    files = {path.name: _facts(path) | {"sha256": _sha256(path)} for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps(files, indent=1), encoding="utf-8")


def _intact(folder: Path) -> bool:
    try:
        files: dict[str, dict[str, Any]] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return all(_unchanged(folder / name, facts) for name, facts in files.items())
    except (OSError, ValueError, KeyError):
        return False


def _unchanged(path: Path, noted: dict[str, Any]) -> bool:
    facts = _facts(path)
    if facts["size"] != noted["size"]:
        return False
    return bool(facts["mtime_ns"] == noted["mtime_ns"] or _sha256(path) == noted["sha256"])


def _facts(path: Path) -> dict[str, Any]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _sha256(path: Path, first: int | None = None) -> str:
    """SHA-256 of a file, or of its first bytes."""
    with path.open("rb") as file:
        if first is not None:
            return hashlib.sha256(file.read(first)).hexdigest()
        return hashlib.file_digest(file, "sha256").hexdigest()
