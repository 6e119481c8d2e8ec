"""The cell magic `%%watch`: shows a view above a cell's output, and executes the cell."""

from __future__ import annotations

import ast
import difflib
import inspect
import keyword
import shlex
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from IPython.core.error import UsageError

from distlab.errors import OptionError
from distlab.recording import record
from distlab.widgets._view import in_notebook
from distlab.widgets._views import SINGLE, Chosen, Watch

_OPTIONS = ("--record", "--overwrite", "--batch")


class WatchError(OptionError, UsageError):
    """The options of `%%watch` are invalid; IPython shows this error as one line."""


@dataclass
class Options:
    """The options of `%%watch`.

    Attributes:
      panes: Names of the charts to show, empty for those of `watch`.
      folder: The folder to record to, None for no recording.
      variable: The cell's name for the recording, empty for none.
      batch: Number of the batch to show, None for the newest.
      overwrite: Whether the folder may already hold a run.
    """

    panes: list[str] = field(default_factory=list)
    folder: str | None = None
    variable: str = ""
    batch: int | None = None
    overwrite: bool = False


def register(shell: Any) -> None:
    """Adds `%%watch` to an IPython shell."""

    def watch(line: str, cell: str) -> Any:
        """Shows a view of the run and executes the cell.

            %%watch                                batches, devices and reductions
            %%watch placement steps                these views only
            %%watch --batch 22                     that batch instead of the newest
            %%watch --record runs/first run        and records it; the cell may call run.log(...)
            %%watch --record runs/first --overwrite

        Views: batches, devices, reductions, placement, steps.
        """
        return run_watched(shell, line, cell)

    shell.register_magic_function(watch, "cell", "watch")


def run_watched(shell: Any, line: str, cell: str) -> Any:
    """Shows a view and executes a cell."""
    options = parse(line)
    if _awaits(shell, cell):
        raise WatchError(
            "%%watch executes a cell at once, so it can't await outside of a function. Call "
            "dl.watch() in a cell, and record in the next one: with dl.record(folder) as run."
        )
    recorded = options.folder is not None
    recording = record(options.folder, overwrite=options.overwrite) if recorded else nullcontext()
    shows_live = in_notebook()
    if shows_live:
        _open(options)
    try:
        with recording as run:
            if options.variable:
                shell.user_ns[options.variable] = run
            return _execute(shell, cell)
    finally:
        if not shows_live:  # a printed summary is the most complete at the end
            _open(options)


def parse(line: str) -> Options:
    """Parses the options of `%%watch`."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise WatchError(f"%%watch can't read {line!r}: {error}. Close the quotation.") from error
    options = Options()
    while words:
        word = words.pop(0)
        if word == "--record":
            options.folder = _following(word, words, "a folder, such as --record runs/first")
        elif word == "--batch":
            options.batch = _number(_following(word, words, "a batch's number, from 0"))
        elif word == "--overwrite":
            options.overwrite = True
        elif word in SINGLE:
            options.panes += [pane for pane in SINGLE[word].panes if pane not in options.panes]
        else:
            _name(options, word)
    if options.folder is None and (options.variable or options.overwrite):
        given = options.variable or "--overwrite"
        raise WatchError(f"{given} needs a recording. Add --record and its folder.{_known()}")
    return options


def _open(options: Options) -> None:
    Chosen(options.panes or Watch.panes, batch=options.batch)


def _following(option: str, words: list[str], what: str) -> str:
    if not words or words[0].startswith("--"):
        raise WatchError(f"{option} needs {what}.")
    return words.pop(0)


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise WatchError(f"--batch needs a batch's number, from 0, got {word!r}.")
    return int(word)


def _name(options: Options, word: str) -> None:
    """Uses a word that is no view as the recording's name, or rejects it."""
    near = difflib.get_close_matches(word, [*SINGLE, *_OPTIONS], 1)
    if near or options.folder is None or options.variable or not _is_name(word):
        meant = f" Did you mean {near[0]}?" if near else ""
        raise WatchError(f"%%watch has no option {word!r}.{meant}{_known()}")
    options.variable = word


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def _known() -> str:
    return (
        f" It accepts views ({', '.join(SINGLE)}), --batch NUMBER, and --record FOLDER with the "
        "cell's name for the recording, and --overwrite."
    )


def _awaits(shell: Any, cell: str) -> bool:
    """Returns whether a cell awaits outside of a function, which IPython's own execution allows."""
    flags = shell.compile.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        code = compile(shell.transform_cell(cell), "<cell>", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError):  # executing it raises the error
        return False
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _execute(shell: Any, cell: str) -> Any:
    """Executes a cell as if it stood alone, so that an error ends it and is shown once."""
    source = shell.transform_cell(cell)
    name = shell.compile.cache(source)  # tracebacks show its lines
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    names = shell.user_ns
    exec(shell.compile(tree, name, "exec"), names)  # noqa: S102 - the user's own cell
    if last is None:
        return None
    return eval(shell.compile(ast.Expression(last.value), name, "eval"), names)  # noqa: S307
