from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distlab.profiling.busy import covered_ns

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30))).map(
    lambda pairs: sorted((begin, begin + length) for begin, length in pairs)
)


@given(spans=SPANS, start=st.integers(0, 40), length=st.integers(0, 60))
def test_what_is_covered_is_what_counting_each_nanosecond_finds(
    spans: list[tuple[int, int]], start: int, length: int
) -> None:
    covered = {moment for begin, end in spans for moment in range(begin, end)}
    inside = covered & set(range(start, start + length))
    assert covered_ns(spans, start, start + length) == len(inside)


def test_spans_that_overlap_count_once() -> None:
    assert covered_ns([(0, 10), (5, 12), (6, 7), (20, 30)], 2, 25) == 10 + 5
