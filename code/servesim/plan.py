"""View and plan: what a policy is shown, and what it answers.

Both are plain data. They turn into JSON and back unchanged, so a policy can as well live in
another process, and a trace can keep what was seen and what was decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import islice
from operator import attrgetter
from typing import Any, SupportsIndex, overload

from .batch import Batch
from .kv import Room, power_of_two
from .request import Progress

_PROGRESS = tuple(f.name for f in fields(Progress))
_told = attrgetter(*_PROGRESS)  # the fast way: a policy in another process is told in every step


class Queue(deque[Progress]):
    """The waiting requests, head first. A deque that can also be sliced."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Progress: ...
    @overload
    def __getitem__(self, index: slice) -> list[Progress]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Progress | list[Progress]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step > 0:
                return list(islice(self, start, stop, step))
            return list(self)[index]
        return super().__getitem__(index)


@dataclass(slots=True)
class View:
    """All that a scheduler sees when it plans a step. Valid during the call of `plan`.

    Attributes
    ----------
    clock_ns : int
        Time at which the step will start.
    step : int
        Index of the step.
    waiting : Queue of Progress
        Requests that hold no place in the batch, head of the queue first.
    running : Batch
        Requests in the batch, in the order in which they joined. Reads like a list, and knows
        more: how many of them decode, who does not yet, how many blocks the next tokens take.
    free_blocks, total_blocks, block_size : int
        KV blocks that nobody holds, all blocks (a null block included), tokens in a block.
    reserve_all : bool
        True if a request gets all the blocks it will ever need when it joins (see `blocks_needed`).
    more_to_come : bool
        True if requests will still arrive.
    holes : list of int or None
        Sizes of the free chunks, if the blocks of a request must be neighbors; None if any free
        blocks will do (paging).
    """

    clock_ns: int
    step: int
    waiting: Queue
    running: Batch
    free_blocks: int
    total_blocks: int
    block_size: int
    reserve_all: bool = False
    more_to_come: bool = False
    holes: list[int] | None = None

    def __post_init__(self) -> None:
        """Accept plain lists, as they come from JSON or from a test."""
        if not isinstance(self.waiting, Queue):
            self.waiting = Queue(self.waiting)
        if not isinstance(self.running, Batch):
            self.running = Batch.of(self.running, self.block_size, not self.reserve_all)

    def room(self) -> Room:
        """Return the free blocks as something to take from while planning."""
        return Room(self.free_blocks, self.holes)

    def blocks_needed(self, request: Progress, tokens: int) -> int:
        """Return how many blocks `request` must get before `tokens` more of its tokens can run.

        Under reserve-all that is everything at once when it joins: the prompt and every token
        it is predicted to produce but the last, whose keys and values are never needed. On
        demand it is what the tokens of this step need beyond what it holds. In a contiguous
        cache it is a whole new chunk, a power of two, if it holds none or has outgrown its own.
        """
        whole = request.computed + tokens
        if self.reserve_all:
            whole = max(whole, request.prompt_len + (request.predicted_output or 1) - 1)
        blocks, held = -(-whole // self.block_size), request.blocks
        if blocks <= held:
            return 0
        return blocks - held if self.holes is None else power_of_two(blocks)

    def to_json(self) -> dict[str, Any]:
        """Return the view as JSON-ready data."""
        data = asdict_shallow(self)
        data["waiting"] = [dict(zip(_PROGRESS, _told(r), strict=True)) for r in self.waiting]
        data["running"] = [dict(zip(_PROGRESS, _told(r), strict=True)) for r in self.running]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> View:
        """Rebuild a view from `to_json`'s data."""
        data = dict(data)
        data["waiting"] = [Progress(**r) for r in data["waiting"]]
        data["running"] = [Progress(**r) for r in data["running"]]
        return cls(**data)


@dataclass(slots=True)
class Plan:
    """What to do in the next step.

    Attributes
    ----------
    scheduled : list of (int, int)
        Request id and number of tokens, in order. A waiting request that is named here joins
        the batch, at its end.
    decode_all : bool
        Every running request that decodes gets its next token, before the scheduled ones; they
        need not be named.
    preempted : list of int
        Running requests to throw out, in order: each loses its blocks and goes to the head of
        the queue. What it produced is kept, its tokens have to be computed again.
    rejected : list of int
        Waiting requests to turn away for good. Only before their first token.
    wait : bool
        Do nothing until the next request arrives.
    repeatable : bool
        Promise: until somebody arrives, finishes or finds no block, the next plan is the same
        with one more token each, and nothing else. Those whose prompt ends in this step go on
        with their output. The engine may then take several steps at once.
    until_arrival : bool
        Promise on top of `repeatable`: those who finish change nothing for the others. It holds
        until somebody arrives or finds no block, and counts only when nobody waits any more. The
        built-in policies do not promise it for a subclass with a `plan` of its own, which may
        want to count who has finished.
    queue : list of int or None
        The waiting queue after this plan, if the policy reorders it.
    padded_prompt : int
        Tokens that each prompt in this step is padded to; 0 for no padding.
    idle_slots : int
        Places in the batch that are computed although nobody sits in them.
    reasons : dict of int to str
        Why a request was not scheduled: one line each, for those where it is worth saying.
    """

    scheduled: list[tuple[int, int]] = field(default_factory=list)
    decode_all: bool = False
    preempted: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    wait: bool = False
    repeatable: bool = False
    until_arrival: bool = False
    queue: list[int] | None = None
    padded_prompt: int = 0
    idle_slots: int = 0
    reasons: dict[int, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON-ready data."""
        data = asdict_shallow(self)
        data["scheduled"] = [list(pair) for pair in self.scheduled]
        data["reasons"] = {str(rid): reason for rid, reason in self.reasons.items()}
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Rebuild a plan from `to_json`'s data."""
        data = dict(data)
        data["scheduled"] = [(rid, tokens) for rid, tokens in data["scheduled"]]
        data["reasons"] = {int(rid): reason for rid, reason in data["reasons"].items()}
        return cls(**data)


def everything(requests: Iterable[Progress]) -> list[tuple[int, int]]:
    """Schedule all that is missing of each request: its whole prompt, or one token."""
    return [(r.id, r.missing) for r in requests]


def asdict_shallow(record: View | Plan) -> dict[str, Any]:
    """Return the fields of a record as they are."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
