"""The cell magic `%%watch`: shows a view above a cell's output, and runs the cell."""

from __future__ import annotations

import ast
import difflib
import shlex
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from IPython.core.error import UsageError

from distlab.errors import OptionError
from distlab.recording import record
from distlab.widgets._view import View, in_notebook
from distlab.widgets._views import OVERVIEW, SINGLE

_OPTIONS = ("--record", "--overwrite", "--batch")


class WatchError(OptionError, UsageError):
    """What is written behind `%%watch` makes no sense; IPython shows it as one line."""


@dataclass
class Asked:
    """What is written behind `%%watch`.

    Attributes:
      panes: the charts to show.
      folder: where to record to, None for nowhere.
      variable: what the cell calls the recording, empty for no name.
      batch: number of the batch to show, None for the newest.
      overwrite: whether the folder may hold a run already.
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
    """Shows a view and executes a cell.

    Args:
      shell: IPython's shell.
      line: what is written behind `%%watch`.
      cell: the lines below it.

    Returns:
      The value of the cell's last expression, None when it ends otherwise.

    Raises:
      WatchError: `line` makes no sense.
      RecordError: the folder can't be written, or already holds a run.
    """
    asked = parse(line)
    recorded = asked.folder is not None
    recording = record(asked.folder, overwrite=asked.overwrite) if recorded else nullcontext()
    shows_live = in_notebook()
    if shows_live:
        _open(asked)
    try:
        with recording as run:
            if asked.variable:
                shell.user_ns[asked.variable] = run
            return _execute(shell, cell)
    finally:
        if not shows_live:  # a summary that is printed says the most at the end
            _open(asked)


def parse(line: str) -> Asked:
    """Reads what is written behind `%%watch`.

    Raises:
      WatchError: it makes no sense; says what does.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise WatchError(f"%%watch can't read {line!r}: {error}. Close the quotation.") from error
    asked = Asked()
    while words:
        word = words.pop(0)
        if word == "--record":
            asked.folder = _following(word, words, "a folder, such as --record runs/first")
        elif word == "--batch":
            asked.batch = _number(_following(word, words, "a batch's number, from 0"))
        elif word == "--overwrite":
            asked.overwrite = True
        elif word in SINGLE:
            asked.panes += [pane for pane in SINGLE[word] if pane not in asked.panes]
        else:
            _name(asked, word)
    if asked.folder is None and (asked.variable or asked.overwrite):
        given = asked.variable or "--overwrite"
        raise WatchError(f"{given} is about a recording. Add --record and its folder.{_known()}")
    return asked


def _open(asked: Asked) -> None:
    View(tuple(asked.panes) or OVERVIEW, batch=asked.batch, buttons=True)


def _following(option: str, words: list[str], what: str) -> str:
    if not words or words[0].startswith("--"):
        raise WatchError(f"{option} needs {what}.")
    return words.pop(0)


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise WatchError(f"--batch needs a batch's number, from 0, got {word!r}.")
    return int(word)


def _name(asked: Asked, word: str) -> None:
    """Takes a word that is no view: the recording's name, or a mistake."""
    near = difflib.get_close_matches(word, [*SINGLE, *_OPTIONS], 1)
    if near or asked.folder is None or asked.variable or not word.isidentifier():
        meant = f" Did you mean {near[0]}?" if near else ""
        raise WatchError(f"%%watch does not know {word!r}.{meant}{_known()}")
    asked.variable = word


def _known() -> str:
    return (
        f" It takes views ({', '.join(SINGLE)}), --batch NUMBER, and --record FOLDER with the "
        "name by which the cell calls the recording, and --overwrite."
    )


def _execute(shell: Any, cell: str) -> Any:
    """Executes a cell as if it stood alone, so that an error is shown once and ends it."""
    source = shell.transform_cell(cell)
    name = shell.compile.cache(source)  # tracebacks show its lines
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    names = shell.user_ns
    exec(shell.compile(tree, name, "exec"), names)  # noqa: S102 - the user's own cell
    if last is None:
        return None
    return eval(shell.compile(ast.Expression(last.value), name, "eval"), names)  # noqa: S307
