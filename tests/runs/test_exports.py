"""A recorded run as a timeline for Perfetto and as lines of JSON."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import sys
import threading
import warnings
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from pyarrow import parquet

import distlab as dl
from distlab import cli, events
from distlab.errors import (
    ArgumentValueError,
    MissingExtraError,
    NotFiniteWarning,
    RecordError,
)
from distlab.runs.exports import FORMATS

REPLICAS, STEPS = 2, 6
EVENTS_PAGE = Path(__file__).parents[2] / "docs" / "events.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps that take long enough to be watched."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    strategy = dl.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])
    with strategy.scope():
        w = dl.Variable(jnp.ones((200, 200)))

    def step(x: jax.Array) -> jax.Array:
        value = w.value()
        for _ in range(20):
            value = jnp.tanh(value @ w.value())
        w.assign(dl.get_replica_context().all_reduce("MEAN", value + x.mean()))
        return x.sum()

    rows = np.arange(STEPS * 4, dtype=np.float32)
    batches = dl.data.Dataset.from_tensor_slices(rows).batch(4)
    with warnings.catch_warnings(), dl.record(folder) as run:
        warnings.simplefilter("ignore", NotFiniteWarning)  # `broken` is there for it
        for batch in strategy.experimental_distribute_dataset(batches):
            sums = strategy.run(step, args=(batch,))
            total = strategy.reduce("SUM", sums, axis=None)
            run.log(total=total, broken=float("nan"))
        jax.block_until_ready(w.value())
    return folder


@pytest.fixture
def run(folder: Path) -> dl.Run:
    return dl.Run.open(folder)


def _of(run: dl.Run, kind: type[Any]) -> list[Any]:
    return [event for event in run.events() if isinstance(event, kind)]


def _trace(run: dl.Run, folder: Path) -> list[dict[str, Any]]:
    whole = json.loads(run.export(folder / "trace.json").read_text())
    assert whole["otherData"] == {"run": "small", "schema": events.SCHEMA}
    entries: list[dict[str, Any]] = whole["traceEvents"]
    return entries


def test_lines_hold_every_event_and_give_it_back(run: dl.Run, tmp_path: Path) -> None:
    meta, *lines = run.export(tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(meta) == {"kind": "meta", **run.meta}
    assert json.loads(meta)["schema"] == events.SCHEMA
    decoder = msgspec.json.Decoder(events.AnyEvent, strict=False)
    again = [decoder.decode(line) for line in lines]
    assert list(map(repr, again)) == list(map(repr, run.events()))  # nan is not equal to nan
    told = [json.loads(line)["values"] for line in lines if '"kind":"metric"' in line]
    assert told == [{"total": n, "broken": "nan"} for n in (6.0, 22.0, 38.0, 54.0, 70.0, 86.0)]


def test_lines_keep_kinds_that_this_version_does_not_know(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "newer"
    copy.mkdir()
    (source,) = folder.glob("process-*.sqlite")
    target = copy / source.name
    target.write_bytes(source.read_bytes())
    body = msgspec.msgpack.encode({"kind": "weather", "time_ns": 5, "sky": [1, 2]})
    with closing(sqlite3.connect(target)) as database, database:
        (last,) = database.execute("SELECT max(seq) FROM events").fetchone()
        row = (last + 1, 5, "weather", body)
        database.execute("INSERT INTO events VALUES (?,?,?,?)", row)
    with dl.Run.open(copy) as newer:
        last_line = newer.export(tmp_path / "newer.jsonl").read_text().splitlines()[-1]
        newer.export(tmp_path / "newer.json")
    assert json.loads(last_line) == {"kind": "weather", "time_ns": 5, "sky": [1, 2]}


def test_a_part_of_the_timeline_is_written_compressed(run: dl.Run, tmp_path: Path) -> None:
    whole = _trace(run, tmp_path)
    calls = [one for one in whole if one.get("cat") == "step"]
    start, end = calls[2]["ts"] / 1e6, (calls[3]["ts"] + calls[3]["dur"]) / 1e6
    file = run.export(tmp_path / "part.json.gz", start=start, end=end)
    part = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert [one for one in part if one.get("cat") == "step"] == calls[2:4]
    assert [one for one in part if one["ph"] == "M"] == [one for one in whole if one["ph"] == "M"]
    counters = {one["name"] for one in whole if one["ph"] == "C"}
    assert any(name.startswith("busy share of CPU:0 (replica 0 of Mirrored") for name in counters)
    with pytest.raises(ArgumentValueError, match="start choose a part of a timeline"):
        run.export(tmp_path / "events.jsonl", start=1.0)


def test_parquet_holds_the_lines(run: dl.Run, tmp_path: Path) -> None:
    lines = run.export(tmp_path / "events.jsonl").read_text().splitlines()
    table = parquet.read_table(run.export(tmp_path / "events.parquet"))
    assert table.column_names == ["time_ns", "kind", "event"]
    assert table["event"].to_pylist() == lines[1:]
    assert table["kind"].to_pylist() == [json.loads(line)["kind"] for line in lines[1:]]
    assert table["time_ns"].to_pylist() == [event.time_ns for event in run.events()]
    assert json.loads(table.schema.metadata[b"distlab"]) == run.meta


def test_a_pandas_table_has_the_events_of_a_kind(run: dl.Run) -> None:
    steps = run.to_pandas("step")
    assert list(steps.columns) == list(events.Step.__struct_fields__)
    assert steps.to_dict("records") == list(map(msgspec.structs.asdict, _of(run, events.Step)))
    assert len(steps) == STEPS
    assert run.to_pandas("error").empty
    assert "message" in run.to_pandas("error").columns
    with pytest.raises(ArgumentValueError, match=r"kind must be one of run, .*got 'stepz'"):
        run.to_pandas("stepz")


def test_a_missing_package_is_named_with_its_install_command(
    run: dl.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"with pyarrow.*pip install pyarrow"):
        run.export(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"with pandas.*pip install pandas"):
        run.to_pandas("step")
    assert list(tmp_path.iterdir()) == []


def test_a_trace_keeps_the_rules_of_its_format(run: dl.Run, tmp_path: Path) -> None:
    entries = _trace(run, tmp_path)
    assert Counter(e["ph"] for e in entries).keys() <= set("XMCisf")
    for entry in entries:
        assert isinstance(entry["name"], str)
        assert isinstance(entry["pid"], int)
        if entry["ph"] != "M":
            assert entry["ts"] >= 0
        if entry["ph"] == "X":
            assert entry["dur"] >= 0
        if entry["ph"] == "C":
            assert all(isinstance(value, int | float) for value in entry["args"].values())
    assert [e["args"]["total"] for e in entries if e["name"] == "metric total"] == [
        6.0, 22.0, 38.0, 54.0, 70.0, 86.0,
    ]  # fmt: skip
    assert not [e for e in entries if e["name"] == "metric broken"]  # JSON has no nan
    assert len({e["pid"] for e in entries}) == 1
    tracks = {e["tid"]: e["args"]["name"] for e in entries if e["name"] == "thread_name"}
    assert {e["tid"] for e in entries if e["ph"] == "X"} <= tracks.keys()
    spans = {(e["tid"], e["ts"]) for e in entries if e["ph"] == "X"}
    begins = {e["id"]: e for e in entries if e["ph"] == "s"}
    ends = {e["id"]: e for e in entries if e["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert len(begins) > 0
    for number, end in ends.items():
        begin = begins[number]
        assert begin["ts"] <= end["ts"]
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert (begin["tid"], begin["ts"]) in spans
        assert (end["tid"], end["ts"]) in spans


def test_trace_shows_captures_and_steps_of_collectives(tmp_path: Path) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def step(x: Any) -> Any:
        context = dl.get_replica_context()
        rounds = jnp.where(context.replica_id_in_sync_group == 1, 400, 20)
        y = jax.lax.fori_loop(0, rounds, lambda _, a: jnp.tanh(a @ a), x)
        return context.all_reduce("MEAN", y)

    x = strategy.experimental_distribute_values_from_function(lambda _: jnp.eye(64) * 0.5)
    with dl.record(tmp_path / "small", probe=False) as recording:
        x = strategy.run(step, (x,))
        asked = recording.capture(steps=4)
        for _ in range(4):
            x = jax.block_until_ready(strategy.run(step, (x,)))
        asked.result(60)
    with dl.Run.open(tmp_path / "small") as run:
        entries = _trace(run, tmp_path)
        (capture,) = _of(run, events.Capture)
        steps = _of(run, events.Step)
    captured = [e for e in entries if e["ph"] == "X" and e["cat"] == "capture"]
    for place, sort in enumerate(("computing", "waiting for others", "copying")):
        shown = sum(e["dur"] for e in captured if e["name"] == sort)
        spans = [np.frombuffer(packed, "<i8").reshape(-1, 3) for packed in capture.spans]
        stored = sum(int(rows[rows[:, 2] == place, 1].sum()) for rows in spans)
        assert shown == pytest.approx(stored / 1e3, rel=1e-6)
    arrows = [e for e in entries if e.get("cat") == "collective" and e["ph"] == "f"]
    waits = [e for e in captured if e["name"] == "waiting for others"]
    assert {(e["tid"], e["ts"]) for e in arrows} <= {(e["tid"], e["ts"]) for e in waits}
    # The quick replica waits in each of the four steps, one after the other.
    led = {int(e["id"].split(".")[1]) for e in arrows if e["tid"] == min(e["tid"] for e in arrows)}
    assert led == {event.step for event in steps[1:]}


def test_a_trace_has_the_times_of_the_events(run: dl.Run, tmp_path: Path) -> None:
    entries = _trace(run, tmp_path)
    start_ns = next(iter(run.events())).time_ns

    def us(time_ns: int) -> float:
        return (time_ns - start_ns) / 1e3

    calls = [e for e in entries if e.get("cat") == "step"]
    steps = _of(run, events.Step)
    assert [(e["ts"], e["args"]["step"]) for e in calls] == [(us(s.time_ns), s.step) for s in steps]
    assert [e["dur"] for e in calls] == pytest.approx(
        [(s.dispatched_ns - s.time_ns) / 1e3 for s in steps]
    )
    assert all(e["name"].startswith("run ") and "step" in e["name"] for e in calls)
    reductions = [e for e in entries if e.get("cat") == "reduction"]
    assert [e["dur"] for e in reductions] == pytest.approx(
        [r.duration_ns / 1e3 for r in _of(run, events.Reduction)]
    )
    put = [e for e in entries if e["name"] == "put on devices"]
    batches = _of(run, events.Sharding)
    assert [e["args"]["sizes"] for e in put] == [b.sizes for b in batches] == [[2, 2]] * STEPS
    assert [e["ts"] + e["dur"] for e in put] == pytest.approx([us(b.time_ns) for b in batches])
    ready = {s.step: s for s in _of(run, events.StepReady)}
    by_name = {
        e["args"]["name"].split(" ")[0]: e["tid"] for e in entries if e["name"] == "thread_name"
    }
    on_devices = [e for e in entries if e.get("cat") == "device"]
    assert len(on_devices) > 0
    for replica in range(REPLICAS):
        own = [e for e in on_devices if e["tid"] == by_name[f"CPU:{replica}"]]
        for span in own:
            told = us(ready[span["args"]["step"]].ready_ns[replica])
            assert span["ts"] + span["dur"] == pytest.approx(told)
        for before, after in pairwise(own):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3


def test_a_trace_shows_the_compilations_of_its_own_time_only(run: dl.Run, tmp_path: Path) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    entries = _trace(run, tmp_path)
    spans = [e for e in entries if e.get("cat") == "compile"]
    start_ns = next(iter(run.events())).time_ns
    own = [c for c in _of(run, events.Compile) if c.time_ns > start_ns]
    assert [e["name"] for e in spans] == [f"compile {c.function}" for c in own]
    assert all(e["dur"] > 0 for e in spans)
    strategy.run(lambda: jnp.ones(3))
    with dl.record(tmp_path / "later"):
        pass
    with dl.Run.open(tmp_path / "later") as later:
        assert _of(later, events.Compile)
        whole = json.loads(later.export(tmp_path / "later.json").read_text())
    assert not [e for e in whole["traceEvents"] if e.get("cat") == "compile"]


@pytest.mark.slow
def test_all_lists_of_the_formats_agree(
    run: dl.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suffixes = [known.suffix for known in FORMATS]
    assert re.findall(r"`(\.[\w.]+)`: ", dl.Run.export.__doc__ or "") == suffixes
    with pytest.raises(SystemExit):
        cli.main(["export", "--help"])
    helped = re.findall(r"^  (\.[\w.]+) +(.+)$", capsys.readouterr().out, re.MULTILINE)
    assert helped == [(known.suffix, known.text) for known in FORMATS]
    section = EVENTS_PAGE.read_text().partition("## Files for other tools\n")[2]
    assert re.findall(r"^\| `(\.[\w.]+)` \| (.+) \|$", section, re.MULTILINE) == helped
    with pytest.raises(ArgumentValueError) as refused:
        run.export(tmp_path / "run.csv")
    assert all(f"{known.suffix} " in f"{refused.value} ".replace(",", " ") for known in FORMATS)
    for known in FORMATS:
        assert run.export(tmp_path / known.example).stat().st_size > 0


def test_wrong_targets_are_refused_and_leave_nothing_behind(run: dl.Run, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("mine")
    with pytest.raises(RecordError, match=r"mine.json exists already.*overwrite=True"):
        run.export(tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == "mine"
    with pytest.raises(ArgumentValueError, match=r"writes .html, .*.parquet files, got 'run"):
        run.export(tmp_path / "run.csv")
    with pytest.raises(RecordError, match="can't be written: No such file or directory"):
        run.export(tmp_path / "none" / "trace.json")
    run.close()
    with pytest.raises(RecordError, match=r"was closed.*Open it again"):
        run.export(tmp_path / "closed.json")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.json"]
    with dl.Run.open(run.path) as again:
        again.export(tmp_path / "mine.json", overwrite=True)
    assert json.loads((tmp_path / "mine.json").read_text())["traceEvents"]


@pytest.mark.slow
def test_a_full_disk_is_named_for_every_format(folder: Path, tmp_path: Path) -> None:
    unfinished = f".distlab-export-{os.getpid()}-{threading.get_ident()}"
    for known in FORMATS:
        (tmp_path / unfinished).symlink_to("/dev/full")
        with dl.Run.open(folder) as run, pytest.raises(RecordError) as raised:
            run.export(tmp_path / known.example)
        assert str(raised.value) == (
            f"{tmp_path / known.example} can't be written: No space left on device. Free space "
            "there, or name a file on another disk."
        )
        assert list(tmp_path.iterdir()) == []


def test_jsonl_lines_are_events_where_names_hold_line_breaks(tmp_path: Path) -> None:
    names = ["a\u2028b", "c\u2029d", "e\x85f", "g\x1eh\ni\u00e9"]
    with dl.record(tmp_path / "run", name=names[0], probe=False) as recording:
        recording.log(dict.fromkeys(names, 1.0), step=1)
    with dl.Run.open(tmp_path / "run") as run:
        text = run.export(tmp_path / "events.jsonl").read_text()
        events = len(list(run.events()))
    meta, *lines = map(json.loads, text.splitlines())
    assert meta["name"] == names[0]
    assert len(lines) == events
    assert [line["values"] for line in lines if line["kind"] == "metric"] == [
        dict.fromkeys(names, 1.0)
    ]
