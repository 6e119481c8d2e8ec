"""Checkpoints as folders that Orbax writes and reads.

Each has two items: `arrays`, by name, and `objects`, the entries that describe them. Orbax writes
a folder under another name and renames it, so that it is there as a whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import jax
import msgspec
import numpy as np

from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointError,
    DataLossError,
    DistlabError,
    MissingExtraError,
    NotFoundError,
)
from distlab.integrations.orbax.entry import Entry, Saved
from distlab.processes import group
from distlab.processes.group import ProcessGroup
from distlab.text.paths import at_home, path_refusal
from distlab.text.shown import shown, shown_clause

VERSION: Final = 1
_METADATA: Final = "_CHECKPOINT_METADATA"
_WRITTEN_NS: Final = "commit_timestamp_nsecs"
_UNFINISHED: Final = ".orbax-checkpoint-tmp"
_HOUR_NS: Final = 3600 * 10**9
_one_at_a_time: Final = threading.RLock()
"""Held while Orbax works, whose objects are for one thread."""


def absolute(path: Any) -> Path:
    """Returns a path as an absolute one."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ArgumentTypeError(
            f"A checkpoint's path must be a string or a path, got {shown(path)}. Write for example "
            "'checkpoints/ckpt'."
        )
    if refusal := path_refusal(path, "A checkpoint"):
        raise ArgumentValueError(refusal)
    return Path(at_home(os.fspath(path))).absolute()


def write(path: Path, state: Mapping[str, Saved]) -> None:
    """Writes a checkpoint; one of that name is replaced when the new one is whole."""
    with _writing(path):
        new = _new(path) if path.exists() else path
        _checkpointer(group.current()).save(new, args=_items(state), force=True)
        if new != path:
            remove(path)
            new.rename(path)


def _new(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def remove(path: Path) -> None:
    """Removes a checkpoint; what a process that is killed meanwhile leaves, `retain` removes."""
    left = path.with_name(f"{path.name}{_UNFINISHED}")
    shutil.rmtree(left, ignore_errors=True)
    with suppress(OSError):
        path.rename(left)
    shutil.rmtree(left, ignore_errors=True)


def retain(
    folder: Path,
    name: str,
    newest: int | None,
    every_hours: float | None,
    every_number: int | None,
) -> None:
    """Removes what is left of unfinished saves, and all checkpoints but those to be kept."""
    with _one_at_a_time:
        for path in folder.glob(f"{name}-*{_UNFINISHED}*"):
            shutil.rmtree(path, ignore_errors=True)
        next_ns = 0.0
        for path in found(folder, name)[: -newest if newest is not None else 0]:
            if every_hours is not None and _time_of(path) >= next_ns:
                next_ns = _time_of(path) + every_hours * _HOUR_NS
            elif every_number is None or _number_of(path.name) % every_number != 0:
                remove(path)


def found(folder: Path, name: str | None = None) -> list[Path]:
    """Returns the checkpoints of a folder, of one name or of any, the last written one last."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file, not a folder of checkpoints. Choose another.")
    paths = list(folder.iterdir()) if folder.exists() else []
    prefix = ".*" if name is None else re.escape(name)
    named = [path for path in paths if re.fullmatch(rf"{prefix}-\d+", path.name)]
    whole = [path for path in named if _is_checkpoint(path)]
    return sorted(whole, key=lambda path: (_time_of(path), _number_of(path.name)))


def _number_of(name: str) -> int:
    return int(name.rpartition("-")[2])


def _is_checkpoint(path: Path) -> bool:
    """Returns whether a path is that of a checkpoint, other than those Orbax writes for others."""
    return (path / _METADATA).is_file() and (path / "objects").is_dir()


def _time_of(path: Path) -> int:
    """Returns when a checkpoint was written, in nanoseconds."""
    try:
        return int(json.loads((path / _METADATA).read_bytes())[_WRITTEN_NS])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def entries(path: Path) -> dict[str, Entry]:
    """Returns the entries of a checkpoint, by name."""
    if not path.exists() and _is_checkpoint(_new(path)):  # killed as it took the old one's place
        _new(path).rename(path)
    if not path.exists() or (path.is_dir() and found(path)):
        raise NotFoundError(
            f"There is no checkpoint {path}. Pass dl.train.latest_checkpoint(folder), which is the "
            "path of a folder's newest one."
        )
    with _reading(path) as reader:
        if not _is_checkpoint(path):
            raise _damaged(path, "it was not written by distlab.train")
        items = orbax().args.Composite(objects=orbax().args.JsonRestore())
        objects = reader.restore(path, args=items)["objects"]
        if objects["version"] > VERSION:
            raise _damaged(path, "it was written by a newer version of distlab")
        return msgspec.convert(objects["entries"], dict[str, Entry])


def arrays(path: Path, known: Mapping[str, Entry], names: Collection[str]) -> dict[str, np.ndarray]:
    """Returns arrays of a checkpoint."""
    read = {
        name: np.zeros(known[name].shape, np.dtype(known[name].dtype))
        for name in names
        if known[name].has_array and not known[name].stored
    }
    wanted = {name: 0 for name in names if known[name].stored}
    if not wanted:
        return read
    with _reading(path) as reader:
        restore = orbax().args.PyTreeRestore(
            item=wanted,
            restore_args={name: orbax().RestoreArgs() for name in wanted},
            partial_restore=True,
        )
        items = orbax().args.Composite(arrays=restore)
        stored = reader.restore(path, args=items)["arrays"]
        for name, array in stored.items():
            if known[name].checksum not in (None, _checksum(array)):
                raise _damaged(path, f"the numbers of {name} were changed")
        return read | stored


def plain(value: Any) -> Any:
    """Returns a NumPy number in a state as JSON's."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


def _items(state: Mapping[str, Saved]) -> Any:
    """Returns the items of a checkpoint. Checksums are ours: Orbax misses changed numbers."""
    stored = {n: s.array for n, s in state.items() if s.array is not None and s.entry.stored}
    described = {
        name: msgspec.structs.replace(saved.entry, checksum=_checksum(stored[name]))
        if name in stored
        else saved.entry
        for name, saved in state.items()
    }
    objects = {"version": VERSION, "entries": msgspec.to_builtins(described, enc_hook=plain)}
    items = {"objects": orbax().args.JsonSave(objects)}
    if stored:
        items["arrays"] = orbax().args.PyTreeSave(stored)
    return orbax().args.Composite(**items)


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    if re.search(r"[\[\]*?]", str(path)):
        raise ArgumentValueError(
            f"Orbax can't read checkpoints whose path has [, ], * or ?, got {path}. Choose another "
            "name."
        )
    try:
        with _one_at_a_time:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not _is_checkpoint(path):
                raise CheckpointError(
                    f"{path} exists and is no checkpoint, so none is written there. Remove it, or "
                    "choose another name."
                )
            yield
    except DistlabError:
        raise
    except Exception as error:  # Orbax and TensorStore raise errors of many types
        for new in (path.name, f"{path.name}.new"):
            shutil.rmtree(path.with_name(f"{new}{_UNFINISHED}"), ignore_errors=True)
        raise CheckpointError(
            f"{path} could not be written: {shown_clause(error)}. Free space on the disk, or "
            "choose another folder; earlier checkpoints are as they were."
        ) from error


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    try:
        with _one_at_a_time:
            yield _checkpointer(group.current())
    except DistlabError:
        raise
    except Exception as error:  # Orbax, TensorStore and JSON raise errors of many types
        raise _damaged(path, shown_clause(error, 300)) from error


def _damaged(path: Path, why: str) -> DataLossError:
    return DataLossError(
        f"{path} is no checkpoint, or it is damaged: {why}. Restore another one: "
        "CheckpointManager.checkpoints lists them."
    )


@cache
def orbax() -> Any:
    """Returns Orbax, imported when a checkpoint is first written or read."""
    try:
        import orbax.checkpoint as library
    except ImportError as error:
        raise MissingExtraError(
            "Checkpoints need Orbax, which is not installed. Run: pip install 'distlab[checkpoint]'"
        ) from error
    return library


@lru_cache(maxsize=1)
def _checkpointer(processes: ProcessGroup | None) -> Any:
    """Returns Orbax's writer and reader of folders, for this process alone: Orbax would meet."""
    options: dict[str, Any] = {}
    if processes is not None:
        with suppress(ImportError, AttributeError):  # its first connection, perhaps to those left
            from orbax.checkpoint._src.futures import signaling_client

            signaling_client.get_signaling_client.cache_clear()
        here = jax.process_index()
        options["multiprocessing_options"] = orbax().options.MultiprocessingOptions(
            primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"distlab{here}"
        )
    handler = orbax().CompositeCheckpointHandler(
        composite_options=orbax().CompositeOptions(**options),
        arrays=orbax().PyTreeCheckpointHandler(**options),
        objects=orbax().JsonCheckpointHandler(**options),
    )
    return orbax().Checkpointer(handler, **options)
