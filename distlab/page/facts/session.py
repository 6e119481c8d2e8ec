"""What only a server knows of the page that it shows."""

from __future__ import annotations

from typing import Final, TypedDict

from distlab.page.facts.amounts import counted
from distlab.text.units import count_text


class TimeFacts(TypedDict):
    """The time bar.

    Attributes:
      time_end: Seconds from the run's beginning to its newest event.
      time_at: The moment that is shown, in seconds; None for the newest.
      time_since: Events before this second are left out; None for none.
      time_playing: Whether the moment moves on.
      time_reading: Whether events of the moment are still being read.
    """

    time_end: float
    time_at: float | None
    time_since: float | None
    time_playing: bool
    time_reading: bool


class EventFacts(TypedDict):
    """The page Events, beside its table.

    Attributes:
      event_note: How many events were found.
      event_more: Whether older ones may fit, too.
      event_last: Number of the oldest event in the table, None for an empty table.
      event_kinds: The kinds that can be chosen.
      no_events: Whether no event fits.
      event_whole: The chosen event in full.
      has_event: Whether one is chosen.
    """

    event_note: str
    event_more: bool
    event_last: int | None
    event_kinds: tuple[str, ...]
    no_events: bool
    event_whole: str
    has_event: bool


class SessionFacts(TypedDict):
    """The page that is open, and the runs it shows.

    Attributes:
      page: Name of the page whose charts are made.
      library: Whether there are other runs to choose from.
      run_key: Name of the run among these, empty for the only one.
      can_share: Whether the run can be saved as a file.
      compared: Whether two runs are compared.
      not_compared: Whether they are not.
      other: Name of the second one, else empty.
    """

    page: str
    library: bool
    run_key: str
    can_share: bool
    compared: bool
    not_compared: bool
    other: str


class RunsFacts(TypedDict):
    """The page Runs, beside its table.

    Attributes:
      runs_left_out: What the table leaves out, empty for nothing.
    """

    runs_left_out: str


class IndexFacts(RunsFacts):
    """A page without a run, which lists those to choose from.

    Attributes:
      index: Always True.
      library: Always True.
      run: The page's title.
      status: `"index"`.
      status_text: Empty.
    """

    index: bool
    library: bool
    run: str
    status: str
    status_text: str


INDEX: Final[IndexFacts] = {
    "index": True,
    "library": True,
    "run": "runs",
    "status": "index",
    "status_text": "",
    "runs_left_out": "",
}
"""The facts of a page without a run."""


def runs_facts(listed: int, left_out: int) -> RunsFacts:
    """Returns what the table of runs leaves out."""
    if not left_out:
        return {"runs_left_out": ""}
    verb = "is" if left_out == 1 else "are"
    return {
        "runs_left_out": f"{counted(left_out, 'older run')} {verb} not listed: the table has the "
        f"{count_text(listed)} that were written last or go on. A run's address, ?run=NAME, opens "
        "any."
    }
