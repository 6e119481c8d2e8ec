"""A profile becomes what each device did, without overlaps and in our clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.profiler import ProfileData

from distlab.errors import CaptureError
from distlab.profiling.profile import ANCHOR
from distlab.profiling.spans import key_of, length_ns, read_spans, spans_of, union, without
from distlab.profiling.step_work import Operations

GPU_PROFILE = f"""
planes {{
  name: "/device:GPU:1"
  lines {{ id: 1 name: "Stream #13" timestamp_ns: 1000000
    events {{ metadata_id: 1 offset_ps: 0 duration_ps: 4000000000 }}
    events {{ metadata_id: 2 offset_ps: 4000000000 duration_ps: 3000000000 }}
    events {{ metadata_id: 3 offset_ps: 9000000000 duration_ps: 1000000000 }} }}
  lines {{ id: 2 name: "Stream #14" timestamp_ns: 1000000
    events {{ metadata_id: 1 offset_ps: 6000000000 duration_ps: 2000000000 }} }}
  event_metadata {{ key: 1 value {{ id: 1 name: "loop_fusion" }} }}
  event_metadata {{ key: 2 value {{ id: 2 name: "ncclDevKernel_AllReduce" }} }}
  event_metadata {{ key: 3 value {{ id: 3 name: "MemcpyH2D" }} }}
}}
planes {{
  name: "/host:CPU"
  lines {{ id: 7 name: "python" timestamp_ns: 1000000
    events {{ metadata_id: 1 offset_ps: 0 duration_ps: 1000 }} }}
  event_metadata {{ key: 1 value {{ id: 1 name: "{ANCHOR}" }} }}
}}
"""


def test_gpu_plane_gives_kernels_collectives_and_copies() -> None:
    planes = list(ProfileData.from_text_proto(GPU_PROFILE).planes)
    found = spans_of(planes, 50_000_000, Operations())
    assert list(found) == [("GPU", 1)]
    ms = [[[round(t / 1e6, 3) for t in row] for row in spans.tolist()] for spans in found["GPU", 1]]
    # Kernels from 0 to 4 ms and 6 to 8; a collective from 4 to 7, of which the last one is hidden.
    assert ms == [[[50.0, 54.0], [56.0, 58.0]], [[54.0, 56.0]], [[59.0, 60.0]]]


def _made_up(planes: dict[str, dict[str, list[tuple[str, int, int]]]]) -> list[Any]:
    """Returns planes of lines of events: name, begin and length in microseconds."""
    return [
        SimpleNamespace(
            name=plane,
            lines=[
                SimpleNamespace(
                    name=line,
                    events=[
                        SimpleNamespace(
                            name=name,
                            start_ns=begin * 1e3,
                            duration_ns=length * 1e3,
                            stats=list(_STATS.items()) if plane.startswith("/host") else [],
                        )
                        for name, begin, length in events
                    ],
                )
                for line, events in lines.items()
            ],
        )
        for plane, lines in planes.items()
    ]


_STATS = {"device_ordinal": 0, "hlo_op": "dot.3", "hlo_module": "jit_on_cpu", "program_id": 1}
_HOST = {"python": [(ANCHOR, 10, 1)], "tf_XLAEigen/1": [("dot.3", 2000, 5000)]}


def _lengths_us(planes: dict[str, dict[str, list[tuple[str, int, int]]]]) -> Any:
    found = spans_of(_made_up(planes), 0, Operations())
    return {key: [length_ns(one) // 1_000 for one in spans] for key, spans in found.items()}


def test_lines_that_sum_up_a_tpu_are_not_operations() -> None:
    tpu = {
        "Steps": [("7", 0, 10_000)],
        "XLA Modules": [("jit_step(1)", 1000, 7500)],
        "Framework Name Scope": [("jit(step)", 1000, 7500)],
        "XLA Ops": [("fusion.1", 1000, 500), ("all-reduce.2", 8000, 500)],
        "Async XLA Ops": [("copy-start.4", 1200, 500), ("slice-start.1", 2000, 100)],
    }
    found = _lengths_us({"/host:CPU": {"python": [(ANCHOR, 10, 1)]}, "/device:TPU:0": tpu})
    assert found == {("TPU", 0): [500, 500, 300]}


def test_programs_on_the_cpu_are_no_work_of_the_gpu() -> None:
    gpu = {
        "Steps": [("7", 0, 10_000)],
        "Stream #13(Compute)": [("loop_fusion", 1000, 500)],
    }
    found = _lengths_us({"/host:CPU": _HOST, "/device:GPU:0": gpu})
    assert found == {("GPU", 0): [500, 0, 0], ("CPU", 0): [5000, 0, 0]}


def test_devices_are_matched_by_platform_and_local_number() -> None:
    cpu = SimpleNamespace(platform="cpu", id=2049, local_hardware_id=1)
    gpu = SimpleNamespace(platform="gpu", id=9, local_hardware_id=1)
    assert [key_of(cast("jax.Device", one)) for one in (cpu, gpu)] == [("CPU", 2049), ("GPU", 1)]


def test_empty_damaged_and_anchorless_profiles_are_refused() -> None:
    with pytest.raises(CaptureError, match="empty profile"):
        read_spans(b"", 0, Operations())
    with pytest.raises(CaptureError, match=r"can't be read|lost its beginning"):
        read_spans(b"\xff\xff\xff no protocol buffer", 0, Operations())
    without_anchor = ProfileData.text_proto_to_serialized_xspace(
        GPU_PROFILE.replace(ANCHOR, "other")
    )
    with pytest.raises(CaptureError, match="lost its beginning"):
        read_spans(without_anchor, 0, Operations())


def cover(spans: list[tuple[int, int]]) -> set[int]:
    return {unit for begin, end in spans for unit in range(begin, end)}


# In steps of 10 us, so that what `union` joins (closer than 1 us) is what touches.
spans_in_units = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])),
    max_size=12,
)


@given(spans_in_units, spans_in_units)
def test_union_and_without_are_those_of_sets(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    unit = 10_000
    a = union(np.array(first, float).reshape(-1, 2) * unit)
    b = union(np.array(second, float).reshape(-1, 2) * unit)
    left = without(a, b)
    assert cover([(r[0] // unit, r[1] // unit) for r in a.tolist()]) == cover(first)
    assert cover([(r[0] // unit, r[1] // unit) for r in left.tolist()]) == cover(first) - cover(
        second
    )
    assert length_ns(left) == unit * len(cover(first) - cover(second))
    assert (left[1:, 0] >= left[:-1, 1]).all()


CPU_PROFILE = f"""
planes {{
  name: "/host:CPU"
  lines {{ id: 7 name: "tf_XLA" timestamp_ns: 1000000
    events {{ metadata_id: 1 offset_ps: 0 duration_ps: 1000 }}
    events {{ metadata_id: 2 offset_ps: 1000000000 duration_ps: 2000000000
      stats {{ metadata_id: 1 int64_value: 3 }} stats {{ metadata_id: 2 str_value: "x" }} }}
    events {{ metadata_id: 3 offset_ps: 4000000000 duration_ps: 5000000000
      stats {{ metadata_id: 1 int64_value: 3 }} stats {{ metadata_id: 2 str_value: "x" }} }} }}
  event_metadata {{ key: 1 value {{ id: 1 name: "{ANCHOR}" }} }}
  event_metadata {{ key: 2 value {{ id: 2 name: "tanh_fusion" }} }}
  event_metadata {{ key: 3 value {{ id: 3 name: "psum.7" }} }}
  stat_metadata {{ key: 1 value {{ id: 1 name: "device_ordinal" }} }}
  stat_metadata {{ key: 2 value {{ id: 2 name: "hlo_op" }} }}
}}
"""


@pytest.mark.parametrize(("processes", "lengths"), [(1, [7, 0, 0]), (2, [2, 5, 0])])
def test_a_collective_between_processes_is_a_wait_as_a_whole(
    processes: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    found = spans_of(list(ProfileData.from_text_proto(CPU_PROFILE).planes), 0, Operations())
    assert [length_ns(spans) // 1_000_000 for spans in found["CPU", 3]] == lengths
