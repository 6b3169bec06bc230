"""A recorded run, told step by step: who waits, who runs, what each got, and why.

Everything here is read off the step records. Reasons are the policy's own words (`Plan.reasons`):
where it gave none, none is told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from .errors import InputError
from .kv import Snapshot, block_map, so_many
from .metrics import Result
from .request import NS_PER_MS
from .trace import StepRecord

MOST_CELLS = 100_000
"""Blocks times steps up to which a story knows who holds which block; beyond, only how many."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one request has to do with a step.

    Attributes
    ----------
    id : int
    place : {"batch", "queue"}
        Where it is after the plan.
    known : int
        Tokens known when the step begins: prompt and output so far.
    computed, produced : int
        Of these, tokens in the KV cache and tokens of output, when the step begins.
    tokens : int
        What the step computes of it.
    sampled : bool
        Whether that makes a new token.
    blocks : int
        KV blocks that it holds after the plan.
    told : str
        What was decided about it, in a few words; "" if nobody said anything.
    """

    id: int
    place: Literal["batch", "queue"]
    known: int
    computed: int
    produced: int
    tokens: int
    sampled: bool
    blocks: int
    told: str

    @property
    def sentence(self) -> str:
        """What was decided about it, with its name."""
        return f"r{self.id} {self.told}"


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of a run.

    Attributes
    ----------
    number, last : int
        Which record of the run this is, and which is the last, counted from 0.
    step : StepRecord
    pause_ns : int
        Time before the step in which nothing was computed.
    queue, batch : list of Part
        In order, after the plan.
    away : list of Part
        Those that the policy turned away.
    during : list of int
        Who arrives while the step runs, and waits at least for its end.
    """

    number: int
    last: int
    step: StepRecord
    pause_ns: int
    queue: list[Part]
    batch: list[Part]
    away: list[Part]
    during: list[int]

    @property
    def tokens(self) -> int:
        """Tokens that the step computes, padding not counted."""
        return sum(s.tokens for s in self.step.scheduled)

    def sentence(self) -> str:
        """Return step, clock and decisions in a few short sentences."""
        step = self.step
        begins, lasts = ms(step.start_ns), ms(step.cost_ns)
        out = [f"Step {step.index} begins at {begins} and lasts {lasts}."]
        if self.pause_ns:
            reasons = (why for rid, why in step.paused.items() if rid not in step.rejected)
            why = "; ".join(dict.fromkeys(reasons))
            out.append(f"Before it nothing ran for {ms(self.pause_ns)}{': ' if why else ''}{why}.")
        decoding = [p.id for p in self.batch if p.told == DECODES]
        if decoding:
            out.append(f"{names(decoding)} {'decodes' if len(decoding) == 1 else 'decode'}.")
        out += [f"{p.sentence}." for p in self.batch if p.told != DECODES]
        out += [f"{p.sentence}." for p in [*self.away, *self.queue] if p.told]
        silent = [p.id for p in self.queue if not p.told]
        if silent:
            more = " also" if len(silent) < len(self.queue) else ""
            out.append(f"{names(silent)} {'waits' if len(silent) == 1 else 'wait'}{more}.")
        if not self.batch and not self.queue:
            out.append("Nobody is here.")
        if self.during:
            one = len(self.during) == 1
            comes = "arrives and has" if one else "arrive and have"
            out.append(f"Meanwhile {names(self.during)} {comes} to wait for its end.")
        return " ".join(out)


DECODES = "decodes"


class Story:
    """A run that was recorded step by step.

    Parameters
    ----------
    result : Result
        Of a run with ``record_steps=True``.

    Raises
    ------
    InputError
        If it has no step records.
    """

    def __init__(self, result: Result) -> None:
        if not result.step_records:
            raise InputError(
                "stepper: this run has no recorded step; use simulate(..., record_steps=True) on "
                "a workload of which something can be served"
            )
        self.result, self.steps = result, result.step_records
        self.prompts = {r.request.id: r.request.prompt_len for r in result.records}
        self._arrival = {r.request.id: r.request.arrival_ns for r in result.records}
        # What each request had computed and produced after each record that changed it.
        self._when: dict[int, list[int]] = {rid: [] for rid in self.prompts}
        self._then: dict[int, list[tuple[int, int]]] = {rid: [] for rid in self.prompts}
        for i, step in enumerate(self.steps):
            for rid in step.preempted:
                self._note(rid, i, 0, self.progress(rid, i)[1])
            for s in step.scheduled:
                computed, produced = self.progress(s.id, i)
                self._note(s.id, i, computed + s.tokens, produced + s.sampled)

    def _note(self, rid: int, i: int, computed: int, produced: int) -> None:
        self._when[rid].append(i)
        self._then[rid].append((computed, produced))

    def progress(self, rid: int, i: int) -> tuple[int, int]:
        """Return what a request has computed and produced before record `i`."""
        at = bisect_left(self._when[rid], i)
        return self._then[rid][at - 1] if at else (0, 0)

    @cached_property
    def shots(self) -> list[Snapshot] | None:
        """Who holds which block in each step; None if only counts are known.

        So it is without a limit, in a cache with a null block (vLLM's, which numbers blocks in
        an order of its own), and if there are too many to keep.
        """
        kv = self.result.kv
        if kv.blocks is None or kv.null_block or kv.blocks * len(self.steps) > MOST_CELLS:
            return None
        return block_map(self.steps, kv)

    def moment(self, i: int) -> Moment:
        """Return record `i`; the last one if there are not so many.

        Raises
        ------
        InputError
            If it is below zero.
        """
        if i < 0:
            raise InputError(f"stepper: a step is 0 or more, not {i}")
        i = min(i, len(self.steps) - 1)
        step = self.steps[i]
        before = self.steps[i - 1] if i else None
        ended = before.end_ns if before else self.result.start_ns
        return Moment(
            number=i,
            last=len(self.steps) - 1,
            step=step,
            pause_ns=max(0, step.start_ns - ended),
            queue=[self._part(rid, i, "queue") for rid in step.waiting],
            batch=[self._part(rid, i, "batch") for rid in step.running],
            away=[self._part(rid, i, "queue") for rid in step.rejected],
            during=[
                rid
                for rid in (self.steps[i + 1].arrived if i + 1 < len(self.steps) else ())
                if step.start_ns < self._arrival[rid] < step.end_ns
            ],
        )

    def _part(self, rid: int, i: int, place: Literal["batch", "queue"]) -> Part:
        step = self.steps[i]
        computed, produced = self.progress(rid, i)
        given = next((s for s in step.scheduled if s.id == rid), None)
        told = self._in_batch(rid, i) if place == "batch" else self._in_queue(rid, i)
        return Part(
            id=rid,
            place=place,
            known=self.prompts[rid] + produced,
            computed=0 if rid in step.preempted else computed,
            produced=produced,
            tokens=given.tokens if given else 0,
            sampled=bool(given and given.sampled),
            blocks=step.blocks.get(rid, 0),
            told=told,
        )

    def _in_batch(self, rid: int, i: int) -> str:
        step = self.steps[i]
        given = next((s for s in step.scheduled if s.id == rid), None)
        if given is None:
            why = self._reason(rid, step)
            return f"waits: {why}" if why else "gets no tokens"
        done = ", done" if rid in step.finished else ""
        if given.decode:
            return f"{DECODES}{done}"
        computed, produced = self.progress(rid, i)
        missing = self.prompts[rid] + produced - computed
        verb = "recomputes" if produced else "prefills"
        goes_on = bool(i) and rid in self.steps[i - 1].running
        if given.tokens < missing:
            much = f"{given.tokens} of {so_many(missing, 'token')}"
            much += " left" * goes_on
        elif missing == 1:
            much = f"{'the last' if goes_on else 'its only'} token"
        else:
            much = f"{'the last' if goes_on else 'all'} {missing} tokens"
        return f"{'' if goes_on else 'joins, '}{verb} {much}{done}"

    def _in_queue(self, rid: int, i: int) -> str:
        step = self.steps[i]
        why = self._reason(rid, step)
        if rid in step.rejected:
            return f"is turned away{': ' if why else ''}{why}"
        if rid in step.preempted:
            held = self.steps[i - 1].blocks.get(rid, 0)
            return f"is thrown out: {why}" if why else f"is thrown out, frees {so_many(held)}"
        if why:
            return f"waits: {why}"
        return "has arrived and waits" if rid in step.arrived else ""

    @staticmethod
    def _reason(rid: int, step: StepRecord) -> str:
        """Return the policy's reason, without the name and the verb that we put before it."""
        said = step.reasons.get(rid) or (step.paused.get(rid) if rid in step.rejected else "")
        why = " ".join((said or "").split())
        for verb in (" waits: ", " is thrown out: ", " is turned away: ", ": "):
            why = why.removeprefix(f"r{rid}{verb}")
        return why.removeprefix("turned away: ")


def names(ids: Sequence[int]) -> str:
    """Return ``r0, r1 and r2``; of a long list the first and how many more."""
    shown = [f"r{rid}" for rid in ids]
    if len(shown) > 12:
        return f"{', '.join(shown[:10])} and {len(shown) - 10} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else "nobody"


def ms(ns: int) -> str:
    """Return a time in milliseconds: one decimal, three below a tenth."""
    value = ns / NS_PER_MS
    return f"{value:,.1f} ms" if value >= 0.1 else f"{value:.3g} ms"


def table(story: Story, about: int, most: int = 60) -> tuple[list[str], list[list[str | int]]]:
    """Return one row per step: all of a short run, of a long one those around step `about`."""
    header = ["step", "starts (ms)", "lasts (ms)", "tokens given", "waiting", "reason"]
    header += ["thrown out", "turned away", "done"]
    limited = story.result.kv.blocks is not None
    if limited:
        header.append("free blocks")
    first = max(0, min(about - most // 2, len(story.steps) - most))
    rows: list[list[str | int]] = []
    for step in story.steps[first : first + most]:
        given = " ".join(f"r{s.id}:{s.tokens}" for s in step.scheduled)
        why = "; ".join(dict.fromkeys(" ".join(w.split()) for w in step.reasons.values()))
        row: list[str | int] = [str(step.index), ms(step.start_ns)[:-3], ms(step.cost_ns)[:-3]]
        row += [given, _ids(step.waiting), why]
        row += [_ids(ids) for ids in (step.preempted, step.rejected, step.finished)]
        if limited:
            row.append(step.free_blocks[1])
        rows.append([cell if cell != "" else "-" for cell in row])
    return header, rows


def _ids(ids: Iterable[int]) -> str:
    return " ".join(f"r{rid}" for rid in ids)
