"""Slurm's short lists, written out."""

from __future__ import annotations

import pytest

from distlab.cluster.slurm import expand_hostlist, expand_tasks_per_node, in_slurms_order
from distlab.errors import ClusterSpecError


def test_lists_are_written_out() -> None:
    for hostlist, hosts in [
        ("n[1-2],m5,o[3-4,6,7-9]", "n1 n2 m5 o3 o4 o6 o7 o8 o9"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-011]", "n8 n9 n10 n11"),
        ("a[1-2]b[01,3]", "a1b01 a1b3 a2b01 a2b3"),
        ("n[1-2]-ib", "n1-ib n2-ib"),
        ("n1,n1,", "n1 n1"),
    ]:
        assert expand_hostlist(hostlist) == hosts.split()


def test_what_is_no_list_is_refused() -> None:
    for wrong in ("", ",", "n[1-", "n1]", "n[[1]]", "n[]", "n[a-b]", "n[1--3]", "n1,,n2"):
        with pytest.raises(ClusterSpecError, match="A hostlist has a form such as"):
            expand_hostlist(wrong)
    for wrong in ("", "x", "2(3)", "2(x0)", "2,", "-1"):
        with pytest.raises(ClusterSpecError, match="Tasks per node have a form such as"):
            expand_tasks_per_node(wrong)


def test_task_counts_are_written_out() -> None:
    assert expand_tasks_per_node("3(x2),2,1") == [3, 3, 2, 1]
    assert expand_tasks_per_node("4") == [4]


def test_nodes_are_sorted_as_slurm_sorts_them() -> None:
    # What `scontrol show hostlistsorted n10,n9,m5,n1,n02` says.
    nodes = ["n10", "n9", "m5", "n1", "n02"]
    assert sorted(nodes, key=in_slurms_order) == ["m5", "n1", "n9", "n02", "n10"]
