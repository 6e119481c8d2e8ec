"""Checkpoints as folders that Orbax writes and reads.

A checkpoint is written beside its place and renamed, so that it is there as a whole or not at
all. Each has two items: `arrays`, by name, and `objects`, which says what they are. Beside them
are the checksums of all files: Orbax does not notice a changed byte of an array.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

import google_crc32c
import jax
import msgspec
import numpy as np

from distlab.errors import (
    CheckpointError,
    DataLossError,
    DistlabError,
    MissingExtraError,
    NotFoundError,
)
from distlab.file_locks import is_locked
from distlab.integrations.orbax.entry import Entry, Saved
from distlab.processes import group
from distlab.processes.group import ProcessGroup
from distlab.text.shown import shown_clause

VERSION: Final = 1
_CHECKSUMS: Final = "distlab_checksums.json"
_METADATA: Final = "_CHECKPOINT_METADATA"
_CHUNK: Final = 1 << 20
_UNFINISHED: Final = ".orbax-checkpoint-tmp"
_NEW: Final = ".new"
_REPLACED: Final = ".replaced"
_REMOVED: Final = ".removed"
_LOCK: Final = ".saving"
_TRIES: Final = 50
_RETRY_SECONDS: Final = 0.01
_OWN_NUMBERS: Final = re.compile(r"(\.\d+)+$")
_NUMBERED: Final = re.compile(r".*-\d+")
_WRITTEN_NS: Final = "commit_timestamp_nsecs"
_OF_PATTERNS: Final = re.compile(r"[\[\]*?]")
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_given_up = 0
"""How many saves failed or were interrupted in this process."""
_left: Final[list[Path]] = []
"""The folders of those that failed, which the next save removes once more."""

_one_at_a_time: Final = threading.RLock()
"""Held while a checkpoint is written or read: Orbax's checkpointer is for one thread, and what a
killed process left in a folder looks like what another thread is writing."""


def require_orbax() -> None:
    """Imports Orbax."""
    _orbax()


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Held while checkpoints of a name are written or removed: a second process is refused.

    Each would remove what the other has not finished. A file system without locks refuses none.
    """
    with _one_at_a_time:
        lock = _lock(folder, name)
        try:
            yield
        finally:
            if lock is not None:
                with suppress(OSError):
                    _lock_path(folder, name).unlink()
                with suppress(OSError):
                    fcntl.flock(lock, fcntl.LOCK_UN)  # a child that was forked has the file, too
                os.close(lock)


def _lock(folder: Path, name: str) -> int | None:
    """Returns an open file that is locked; None where none can be."""
    path, tries = _lock_path(folder, name), 0
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
        except OSError:  # whoever writes says why nothing can be written there
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open(lock, path):
                os.ftruncate(lock, 0)
                os.write(lock, f"Process {os.getpid()} on {socket.gethostname()}".encode())
                return lock
        except BlockingIOError as error:
            who, tries = os.read(lock, 300).decode(errors="replace"), tries + 1
            if who or tries == _TRIES:
                os.close(lock)
                raise _in_use(folder, name, who or "Another process") from error
            time.sleep(_RETRY_SECONDS)  # it has not said who it is, or only looks (`is_locked`)
        except OSError as error:
            if error.errno in _FULL:  # it is locked, and says not by whom
                return lock
            os.close(lock)
            path.unlink(missing_ok=True)
            return None
        os.close(lock)  # the one that had it has removed it meanwhile


def _in_use(folder: Path, name: str, who: str) -> CheckpointError:
    return CheckpointError(
        f"{who} is saving {name} to {folder} right now, so nothing was written or removed. "
        "Programs that save to one folder replace and remove each other's checkpoints: give each "
        "one a folder of its own, or end the other one."
    )


def _is_open(file: int, path: Path) -> bool:
    """Returns whether a path is that of an open file."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def _lock_path(folder: Path, name: str) -> Path:
    return folder / f".{name}{_LOCK}"


def write(path: Path, state: Mapping[str, Saved]) -> None:
    """Writes a checkpoint; one of that name is replaced when the new one is whole."""
    arrays = {n: s.array for n, s in state.items() if s.array is not None and s.entry.stored}
    entries = {n: msgspec.to_builtins(s.entry, enc_hook=plain) for n, s in state.items()}
    with alone(path.parent, path.name):
        _write_whole(path, arrays, {"version": VERSION, "entries": entries})


def _write_whole(path: Path, arrays: Mapping[str, np.ndarray], objects: Mapping[str, Any]) -> None:
    global _given_up
    if path.exists() and not is_checkpoint(path):
        raise CheckpointError(
            f"{path} exists and is no checkpoint, so none is written there. Remove it, or choose "
            "another name."
        )
    # On a file system without locks, another process may write one of this name.
    own = f"{path.name}.{os.getpid()}."
    new = path.with_name(f"{own}{_given_up}{_NEW}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f"{glob.escape(path.name)}.*{_NEW}*"):
            if not left.name.startswith(own):
                _clear(left)  # of a killed process
        while _left:
            _clear(_left.pop())
        _clear(new)
        _write(new, arrays, objects)
        _stamp_as_newest(new, path.parent)
        (new / _CHECKSUMS).write_text(json.dumps(_checksums(new)))
        _put_in_place(new, path)
    except (OSError, ValueError, RuntimeError) as error:
        _given_up += 1
        unfinished = [new, new.with_name(new.name + _UNFINISHED)]
        for folder in unfinished:
            _clear(folder)
        _left.extend(unfinished)  # Orbax's threads may be writing on
        raise CheckpointError(
            f"{path} could not be written: {shown_clause(error)}. Nothing was left behind, and "
            "earlier checkpoints are as they were. Free space on the disk, or choose another "
            "folder."
        ) from error
    except BaseException:
        # Orbax's threads go on, and shall not write into what the next save makes.
        _given_up += 1
        raise


def entries(path: Path) -> dict[str, Entry]:
    """Returns what a checkpoint holds, by name."""
    orbax = _orbax()
    place = _place(path)
    with _one_at_a_time, _damage_as_error(path):
        _require_undamaged(path, place)
        items = orbax.args.Composite(objects=orbax.args.JsonRestore())
        found = _checkpointer().restore(place, args=items)["objects"]
        if found["version"] > VERSION:
            raise _damaged(path, "it was written by a newer version of distlab")
        return msgspec.convert(found["entries"], dict[str, Entry])


def arrays(path: Path, known: Mapping[str, Entry], names: Collection[str]) -> dict[str, np.ndarray]:
    """Returns arrays of a checkpoint."""
    orbax = _orbax()
    read = {
        name: np.zeros(known[name].shape, np.dtype(known[name].dtype))
        for name in names
        if known[name].has_array and not known[name].stored
    }
    wanted = {name: 0 for name in names if known[name].stored}
    if not wanted:
        return read
    with _one_at_a_time, _damage_as_error(path):
        restore = orbax.args.PyTreeRestore(
            item=wanted,
            restore_args={name: orbax.RestoreArgs() for name in wanted},
            partial_restore=True,
        )
        items = orbax.args.Composite(arrays=restore)
        return read | _checkpointer().restore(_place(path), args=items)["arrays"]


def is_checkpoint(path: Path) -> bool:
    """Returns whether a path is that of a whole checkpoint."""
    return (path / _CHECKSUMS).is_file()


def looks_like_checkpoint(path: Path) -> bool:
    """Returns whether a folder is a checkpoint, a damaged one too, and not one of checkpoints."""
    return any((path / name).exists() for name in (_CHECKSUMS, _METADATA))


def time_of(path: Path) -> int:
    """Returns when a checkpoint was written, in nanoseconds."""
    try:
        found = json.loads((path / _METADATA).read_bytes())
        return int(found[_WRITTEN_NS])
    except (OSError, ValueError, KeyError, TypeError):
        return path.stat().st_mtime_ns if path.exists() else 0


def remove(path: Path) -> None:
    """Removes a checkpoint, at once: who is killed meanwhile leaves none that is half there."""
    removed = path.with_name(path.name + _REMOVED)
    _clear(removed)
    with suppress(OSError):
        path.rename(removed)
    _clear(removed)


def remove_unfinished(folder: Path, is_own: Callable[[str], bool]) -> None:
    """Removes what killed processes left behind."""
    with _one_at_a_time:
        for lock in folder.glob(f".*{_LOCK}"):
            name = lock.name.removeprefix(".").removesuffix(_LOCK)
            if is_own(name) and not is_locked(_lock_path(folder, name)):
                lock.unlink(missing_ok=True)
        for ending in (_NEW, _NEW + _UNFINISHED, _REMOVED):
            for path in folder.glob(f"*{ending}"):
                name = path.name.removesuffix(ending)
                name = name if is_own(name) else _OWN_NUMBERS.sub("", name)
                if is_own(name) and not is_locked(_lock_path(folder, name)):
                    _clear(path)


def _write(path: Path, arrays: Mapping[str, np.ndarray], objects: Mapping[str, Any]) -> None:
    orbax = _orbax()
    items: dict[str, Any] = {"objects": orbax.args.JsonSave(dict(objects))}
    if arrays:
        items["arrays"] = orbax.args.PyTreeSave(dict(arrays))
    with _no_pattern(path) as place:
        _checkpointer().save(place, args=orbax.args.Composite(**items))


@contextmanager
def _no_pattern(path: Path) -> Iterator[Path]:
    """Has a folder written under a path without `[`, `*` or `?`, and puts it in its place.

    Orbax finds what it has to join by a pattern in which it does not escape the folder's path:
    of one in `run[lr=0.1]` it would find nothing, and say nothing.
    """
    if glob.escape(str(path)) == str(path):
        yield path
        return
    with TemporaryDirectory(prefix="distlab-checkpoint-") as folder:
        parent = Path(folder, "parent")
        parent.symlink_to(path.parent, target_is_directory=True)
        place = parent / _OF_PATTERNS.sub("_", path.name)
        try:
            yield place
            if place.name != path.name:
                place.rename(path)
        except BaseException:
            _clear(place)
            _clear(place.with_name(place.name + _UNFINISHED))
            raise


def _stamp_as_newest(new: Path, folder: Path) -> None:
    """Has a checkpoint be later than all of a folder, also where this machine's clock is behind."""
    others = [path for path in folder.iterdir() if _NUMBERED.fullmatch(path.name)]
    least_ns = max((time_of(path) + 1 for path in others if is_checkpoint(path)), default=0)
    if time_of(new) < least_ns:
        metadata = new / _METADATA
        found = json.loads(metadata.read_bytes())
        metadata.write_text(json.dumps({**found, _WRITTEN_NS: least_ns}))


def _clear(folder: Path) -> None:
    """Removes a folder that is no checkpoint, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(new: Path, path: Path) -> None:
    """Renames a whole checkpoint. An old one stays where `_place` finds it until that is done."""
    aside = path.with_name(path.name + _REPLACED)
    if path.exists():
        _clear(aside)
        path.rename(aside)
    new.rename(path)
    _clear(aside)


def _place(path: Path) -> Path:
    """Returns the folder of a checkpoint."""
    aside = path.with_name(path.name + _REPLACED)
    if not path.exists() and is_checkpoint(aside):
        return aside
    if not path.exists():
        raise NotFoundError(
            f"There is no checkpoint {path}. Pass dl.train.latest_checkpoint(folder), which is the "
            "path of a folder's newest one."
        )
    return path


def _checksums(folder: Path) -> dict[str, list[int]]:
    """Returns the size and checksum of each file in a folder, by its path."""
    listed = os.walk(folder, onerror=_raise)  # Path.rglob leaves out what it can't list
    files = sorted(Path(place, name) for place, _, names in listed for name in names)
    return {
        file.relative_to(folder).as_posix(): [file.stat().st_size, _crc32c(file)]
        for file in files
        if file.name != _CHECKSUMS
    }


def _raise(error: OSError) -> NoReturn:
    raise error


def _crc32c(path: Path) -> int:
    checksum: Any = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return int.from_bytes(checksum.digest())


def _require_undamaged(path: Path, place: Path) -> None:
    """Checks all files. Orbax prints the traces of its threads when it meets a damaged one."""
    if not is_checkpoint(place):
        raise _damaged(path, "it was not written by distlab.train")
    for name, (size, checksum) in _known_checksums(path, place).items():
        file = place / name
        if not file.is_file():
            raise _damaged(path, f"its file {name} is missing")
        if (found := file.stat().st_size) != size:
            raise _damaged(path, f"its file {name} has {found} of {size} bytes")
        if _crc32c(file) != checksum:
            raise _damaged(path, f"its file {name} was changed")


def _known_checksums(path: Path, place: Path) -> dict[str, tuple[int, int]]:
    text = (place / _CHECKSUMS).read_bytes()
    try:
        known = msgspec.json.decode(text, type=dict[str, tuple[int, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(
            path, f"its file {_CHECKSUMS} has no checksums ({shown_clause(error)})"
        ) from error
    if not known:
        raise _damaged(path, f"its file {_CHECKSUMS} has no checksums, but {{}}")
    return known


@contextmanager
def _damage_as_error(path: Path) -> Iterator[None]:
    try:
        yield
    except DistlabError:
        raise
    except Exception as error:  # Orbax, TensorStore and JSON raise errors of many types
        raise _damaged(path, shown_clause(error, 300)) from error


def _damaged(path: Path, why: str) -> DataLossError:
    return DataLossError(
        f"{path} is no checkpoint, or it is damaged: {why}. Restore another one: "
        "CheckpointManager.checkpoints lists them."
    )


def plain(value: Any) -> Any:
    """Returns a NumPy number in a state as JSON's."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


@cache
def _orbax() -> Any:
    try:
        import orbax.checkpoint as orbax
    except ImportError as error:
        raise MissingExtraError(
            "Checkpoints need Orbax, which is not installed. Run: pip install 'distlab[checkpoint]'"
        ) from error
    return orbax


def _checkpointer() -> Any:
    return _checkpointer_of(group.current())


@lru_cache(maxsize=1)
def _checkpointer_of(processes: ProcessGroup | None) -> Any:
    """Returns the checkpointer of this process among others, which change with a restart."""
    orbax = _orbax()
    _forget_connection()
    # The arrays are copies already, and no other registration of handlers must change the format.
    registry = orbax.type_handlers.create_type_handler_registry(
        (np.ndarray, orbax.type_handlers.NumpyHandler(deepcopy_host_arrays=False)),
        (jax.Array, orbax.type_handlers.ArrayHandler()),  # Orbax warns where it has none
    )
    if processes is None:
        options: dict[str, Any] = {}
        composite = orbax.CompositeOptions()
    else:  # one process writes, and each reads: Orbax would have all of them meet
        here = jax.process_index()
        alone = orbax.options.MultiprocessingOptions(
            primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"distlab{here}"
        )
        options = {"multiprocessing_options": alone}
        composite = orbax.CompositeOptions(multiprocessing_options=alone)
    return orbax.Checkpointer(
        orbax.CompositeCheckpointHandler(
            composite_options=composite,
            arrays=orbax.PyTreeCheckpointHandler(type_handler_registry=registry, **options),
            objects=orbax.JsonCheckpointHandler(**options),
        ),
        **options,
    )


def _forget_connection() -> None:
    """Lets Orbax connect anew: it keeps its first connection, also to processes that were left."""
    with suppress(ImportError, AttributeError):
        from orbax.checkpoint._src.futures import signaling_client

        signaling_client.get_signaling_client.cache_clear()
