"""Slurm's short lists, written out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlab.cluster.slurm import expand_hostlist, expand_tasks_per_node, in_slurms_order
from distlab.errors import ClusterSpecError


@pytest.mark.parametrize(
    ("hostlist", "hosts"),
    [
        ("n1", "n1"),
        ("n[1-2],m5,o[3-4,6,7-9]", "n1 n2 m5 o3 o4 o6 o7 o8 o9"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-011]", "n8 n9 n10 n11"),
        ("[1-3]", "1 2 3"),
        ("a[1-2]b[01,3]", "a1b01 a1b3 a2b01 a2b3"),
        ("n[1-2]-ib", "n1-ib n2-ib"),
        ("n1,n1", "n1 n1"),
        ("n1,n2,", "n1 n2"),
    ],
)
def test_lists_are_written_out(hostlist: str, hosts: str) -> None:
    assert expand_hostlist(hostlist) == hosts.split()


@pytest.mark.parametrize(
    "hostlist",
    ["", ",", "n[1-", "n1]", "n[1-2]]", "n[[1]]", "n[]", "n[a-b]", "n[1--3]", "n1,,n2"],
)
def test_what_is_no_list_is_refused(hostlist: str) -> None:
    with pytest.raises(ClusterSpecError, match="A hostlist has a form such as"):
        expand_hostlist(hostlist)


RANGES = st.tuples(st.integers(0, 120), st.integers(0, 4), st.integers(1, 4))
"""First number, how many more, and how many digits."""


def write(ranges: list[tuple[int, int, int]]) -> str:
    return ",".join(
        f"{first:0{digits}d}-{first + more}" if more else f"{first:0{digits}d}"
        for first, more, digits in ranges
    )


def count_up(ranges: list[tuple[int, int, int]]) -> list[str]:
    """Counts as a person would, with zeros in front while they are needed."""
    numbers = []
    for first, more, digits in ranges:
        width = max(digits, len(str(first)))
        for number in range(first, first + more + 1):
            text = str(number)
            while len(text) < width:
                text = "0" + text
            numbers.append(text)
    return numbers


PREFIX = st.text("abxyz-", min_size=1, max_size=3)
BRACKETS = st.lists(RANGES, min_size=1, max_size=3)
ENTRY = st.lists(st.tuples(PREFIX, BRACKETS), min_size=1, max_size=2)


@given(st.lists(ENTRY, min_size=1, max_size=3))
def test_any_list_gives_what_counting_gives(
    entries: list[list[tuple[str, list[tuple[int, int, int]]]]],
) -> None:
    expected: list[str] = []
    for entry in entries:
        hosts = [""]
        for prefix, ranges in entry:
            hosts = [host + prefix + number for host in hosts for number in count_up(ranges)]
        expected += hosts
    text = ",".join("".join(f"{p}[{write(r)}]" for p, r in entry) for entry in entries)
    assert expand_hostlist(text) == expected


@pytest.mark.parametrize(
    ("text", "counts"), [("3(x2),2,1", [3, 3, 2, 1]), ("1(x3)", [1, 1, 1]), ("4", [4])]
)
def test_task_counts_are_written_out(text: str, counts: list[int]) -> None:
    assert expand_tasks_per_node(text) == counts


@pytest.mark.parametrize("text", ["", "x", "2(3)", "2(x0)", "2,", "-1"])
def test_what_is_no_list_of_counts_is_refused(text: str) -> None:
    with pytest.raises(ClusterSpecError, match="Tasks per node have a form such as"):
        expand_tasks_per_node(text)


def test_nodes_are_sorted_as_slurm_sorts_them() -> None:
    # What `scontrol show hostlistsorted n10,n9,m5,n1,n02` says.
    nodes = ["n10", "n9", "m5", "n1", "n02"]
    assert sorted(nodes, key=in_slurms_order) == ["m5", "n1", "n9", "n02", "n10"]
