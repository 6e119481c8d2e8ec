"""What compiling took."""

from __future__ import annotations

from typing import TypedDict

from distlab.folds import ProgramColumns
from distlab.page.facts.amounts import counted
from distlab.text.units import count_text, duration_text


class ProgramFacts(TypedDict):
    """The note above the table of programs.

    Attributes:
      has_programs: Whether there are programs.
      no_programs: Whether there are none.
      compiling: How many there are, and the time spent on compiling them.
    """

    has_programs: bool
    no_programs: bool
    compiling: str


def program_facts(programs: ProgramColumns) -> ProgramFacts:
    """Returns the number of programs, and the time spent on compiling them."""
    left_out = programs["rows_left_out"]
    count = len(programs["function"]) + left_out
    older = f"; the oldest {count_text(left_out)} are not listed" if left_out else ""
    return {
        "has_programs": count > 0,
        "no_programs": count == 0,
        "compiling": f"{counted(count, 'program')}, compiled in "
        f"{duration_text(programs['compiling_s'])} together{older}",
    }
