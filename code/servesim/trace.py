"""The step record: what happened in each step, as JSON lines or for a trace viewer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from .checks import instance, list_of
from .cost import Work
from .errors import InputError
from .ledger import NEVER
from .metrics import Result


class Scheduled(NamedTuple):
    """One request in one step: how many tokens, whether one was sampled, whether it decoded."""

    id: int
    tokens: int
    sampled: bool
    decode: bool


@dataclass(slots=True)
class StepRecord:
    """One step.

    Attributes
    ----------
    index : int
    start_ns, cost_ns : int
    arrived : list of int
        Ids that joined the queue since the step before.
    scheduled : list of Scheduled
    preempted, finished : list of int
    free_blocks : (int, int, int)
        Before the plan, after it, and at the end of the step.
    work : Work
        What was priced.
    running, waiting : list of int
        Batch and queue after the plan, in order.
    blocks : dict of int to int
        KV blocks held by each running request after the plan.
    reasons : dict of int to str
        Why a request was not scheduled.
    idle_slots : int
    rejected : list of int
        Ids that the policy turned away since the step before.
    paused : dict of int to str
        Reasons of the plans since the step before that computed nothing: they waited for an
        arrival, or turned somebody away.
    """

    index: int
    start_ns: int
    cost_ns: int
    arrived: list[int]
    preempted: list[int]
    free_blocks: tuple[int, int, int]
    work: Work
    running: list[int]
    waiting: list[int]
    blocks: dict[int, int]
    reasons: dict[int, str]
    idle_slots: int = 0
    rejected: list[int] = field(default_factory=list)
    paused: dict[int, str] = field(default_factory=dict)
    scheduled: list[Scheduled] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)

    @property
    def end_ns(self) -> int:
        """When the step ended."""
        return self.start_ns + self.cost_ns

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        data["work"] = self.work._asdict()
        data["scheduled"] = [list(s) for s in self.scheduled]
        data["free_blocks"] = list(self.free_blocks)
        data["blocks"] = {str(k): v for k, v in self.blocks.items()}
        for name in ("reasons", "paused"):
            data[name] = {str(k): v for k, v in data[name].items()}
        return data


def json_lines(steps: Iterable[StepRecord]) -> Iterator[str]:
    """Yield one line of JSON per step."""
    return (json.dumps(step.to_json()) for step in list_of(StepRecord, "steps", steps))


class Segment(NamedTuple):
    """A stretch of a request's life: what it was doing from `start_ns` to `end_ns`."""

    id: int
    kind: str
    start_ns: int
    end_ns: int


def segments(result: Result) -> list[Segment]:
    """Cut each request's life into stretches, in order of request and time.

    Kinds are ``waiting`` (in the queue), ``prefill`` and ``decode`` (in a step that computes for
    it), ``stalled`` (in the batch, but the step computes for others only) and ``preempted`` (back
    in the queue). Neighboring stretches of one kind are merged.

    Parameters
    ----------
    result : Result
        Of a run with ``record_steps=True``. Without, the records tell as much if nobody was
        preempted and nobody stalled: waiting, then prefill, then decode.

    Raises
    ------
    InputError
        If there was a preemption and there are no step records.
    """
    instance(Result, result=result)
    if not result.step_records:
        return _plain_lives(result)
    out: list[Segment] = []
    arrivals = map(result.records.column, ("id", "arrival_ns"))
    lives = {rid: _life(arrival) for rid, arrival in zip(*arrivals, strict=True)}
    waiting_as: dict[int, str] = {}
    for step in result.step_records:
        kinds = {s.id: "decode" if s.decode else "prefill" for s in step.scheduled}
        waiting_as.update(dict.fromkeys(step.preempted, "preempted"))
        for rid in step.waiting:
            lives[rid].add(waiting_as.get(rid, "waiting"), step.start_ns, step.end_ns)
        for rid in step.running:
            lives[rid].add(kinds.get(rid, "stalled"), step.start_ns, step.end_ns)
    for rid, life in lives.items():
        out.extend(Segment(rid, *stretch) for stretch in life.stretches)
    return out


def _plain_lives(result: Result) -> list[Segment]:
    """Cut lives by the four moments that every record has."""
    if result.preemptions:
        raise InputError("segments: somebody was preempted; run with record_steps=True")
    out: list[Segment] = []
    names = ("id", "arrival_ns", "first_scheduled_ns", "first_token_ns", "last_token_ns")
    for rid, *moments in zip(*map(result.records.column, names), strict=True):
        for kind, (start, end) in zip(KINDS, pairwise(moments), strict=True):
            if start != NEVER and end > start:
                out.append(Segment(rid, kind, start, end))
    return out


KINDS = ("waiting", "prefill", "decode")


class _life:
    """The stretches of one request; gaps are filled with waiting."""

    def __init__(self, arrival_ns: int) -> None:
        self.upto = arrival_ns
        self.stretches: list[tuple[str, int, int]] = []

    def add(self, kind: str, start: int, end: int) -> None:
        if start > self.upto:  # between arrival and the next step, or while the engine waits
            before = self.stretches[-1][0] if self.stretches else "waiting"
            self._put("waiting" if before == "waiting" else "stalled", self.upto, start)
        self._put(kind, max(start, self.upto), end)
        self.upto = max(self.upto, end)

    def _put(self, kind: str, start: int, end: int) -> None:
        if end <= start:
            return
        if self.stretches and self.stretches[-1][0] == kind and self.stretches[-1][2] == start:
            self.stretches[-1] = (kind, self.stretches[-1][1], end)
        else:
            self.stretches.append((kind, start, end))


ENGINE_TRACK, REQUEST_TRACK = 1, 2


def chrome_trace(result: Result) -> dict[str, Any]:
    """Return a run in the Chrome trace event format, which Perfetto reads too.

    One track shows the engine's steps, one track per request shows its life, and counters show
    queue, batch and free blocks. Times are in microseconds, as the format asks.
    """
    instance(Result, result=result)
    events: list[dict[str, Any]] = [
        _name("process_name", ENGINE_TRACK, 0, "engine"),
        _name("process_name", REQUEST_TRACK, 0, "requests"),
    ]
    for step in result.step_records:
        about = {
            "scheduled": [list(s[:2]) for s in step.scheduled],
            "preempted": step.preempted,
            "finished": step.finished,
            "reasons": list(step.reasons.values()),
        }
        events.append(
            _span(ENGINE_TRACK, 0, f"step {step.index}", step.start_ns, step.end_ns, about)
        )
        counters = {"waiting": len(step.waiting), "running": len(step.running)}
        events.append(_counter("requests", step.start_ns, counters))
        if result.kv.blocks is not None:
            events.append(_counter("KV blocks", step.start_ns, {"free": step.free_blocks[1]}))
    for rid in (r.request.id for r in result.records):
        events.append(_name("thread_name", REQUEST_TRACK, rid, f"request {rid}"))
    for s in segments(result):
        events.append(_span(REQUEST_TRACK, s.id, s.kind, s.start_ns, s.end_ns, {}))
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"policy": result.policy}}


def _span(
    pid: int, tid: int, name: str, start: int, end: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": name,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


def _counter(name: str, start: int, values: dict[str, int]) -> dict[str, Any]:
    event = {"ph": "C", "pid": ENGINE_TRACK, "tid": 0, "name": name}
    return {**event, "ts": start / 1000, "args": values}


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}
