"""The cell magic `%%watch`: shows a view above a cell's output, and executes the cell."""

from __future__ import annotations

import argparse
import ast
import shlex
from contextlib import nullcontext
from typing import Any, NamedTuple, NoReturn

from IPython.core.error import UsageError

from distlab.errors import OptionError
from distlab.recording import record
from distlab.widgets._view import in_notebook
from distlab.widgets._views import SINGLE, Chosen, Watch


class WatchError(OptionError, UsageError):
    """The options of `%%watch` are invalid; IPython shows this error as one line."""


class Options(NamedTuple):
    """The options of `%%watch`."""

    panes: list[str]  # the charts to show, none for those of `watch`
    folder: str | None  # to record to
    variable: str  # the cell's name for the recording, empty for none
    batch: int | None  # None: the newest
    overwrite: bool


def register(shell: Any) -> None:
    """Adds `%%watch` to an IPython shell."""

    def watch(line: str, cell: str) -> Any:
        """Shows a view of the run and executes the cell.

            %%watch                                the loss, batches, devices and reductions
            %%watch placement steps                these views only
            %%watch --batch 22                     that batch instead of the newest
            %%watch --record runs/first run        and records it; the cell may call run.log(...)
            %%watch --record runs/first --overwrite

        Views: batches, devices, captures, reductions, placement, steps.
        """
        return run_watched(shell, line, cell)

    shell.register_magic_function(watch, "cell", "watch")


def run_watched(shell: Any, line: str, cell: str) -> Any:
    """Shows a view and executes a cell."""
    options = parse(line)
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
    parser = _Parser(prog="%%watch", add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--record")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--overwrite", action="store_true")
    given = parser.parse_intermixed_args(words)
    names = [word for word in given.words if word not in SINGLE]
    if names and (given.record is None or len(names) > 1 or not names[0].isidentifier()):
        parser.error(f"there is no view {names[-1]!r}")
    if given.overwrite and given.record is None:
        parser.error("--overwrite needs --record")
    panes = dict.fromkeys(
        pane for word in given.words if word in SINGLE for pane in SINGLE[word].panes
    )
    return Options(list(panes), given.record, "".join(names), given.batch, given.overwrite)


class _Parser(argparse.ArgumentParser):
    """Raises the errors of a cell's first line."""

    def error(self, message: str) -> NoReturn:
        raise WatchError(
            f"%%watch: {message}. It accepts views ({', '.join(SINGLE)}), --batch NUMBER, and "
            "--record FOLDER with the cell's name for the recording, and --overwrite."
        )


def _open(options: Options) -> None:
    Chosen(options.panes or Watch.panes, batch=options.batch)


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
