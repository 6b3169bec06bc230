"""Batching with a slot limit and an aging rule: urgent first, but nobody starves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from ... import workload
from ...engine import SupportsPlan
from ...policies import Continuous
from ...request import NS_PER_MS, Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run
from .common import (
    at_most_slots,
    earlier,
    everyone_moves,
    in_order_of,
    makespan_bound_ms,
    makespan_ms,
    moments,
    ms,
    nobody_thrown_out,
    requests_of,
)

PATIENCE_MS = 1000
"""A request that has waited less than this does not go before a more urgent one."""

LIMIT_MS = 3000
"""A request is not passed by one that comes so much later, however urgent that is."""


def requests(n: int, rate: float, priorities: Sequence[int], seed: int) -> tuple[Request, ...]:
    """Draw Poisson arrivals with short prompts and outputs, and a priority for each."""
    rng = random.Random(seed)
    drawn = workload.poisson(n=n, rate=rate, prompt=(32, 256), output=(10, 60), seed=seed)
    return tuple(replace(r, priority=rng.choice(priorities)) for r in drawn)


def by_hand(*rows: tuple[int, int, int]) -> tuple[Request, ...]:
    """Return a few requests to follow with a pencil: arrival in ms, output, priority of each."""
    numbered = enumerate(rows)
    return tuple(Request(i, at * NS_PER_MS, 64, out, urgent) for i, (at, out, urgent) in numbered)


EIGHT = by_hand(
    *((0, 20, 0), (0, 20, 0), (0, 30, 1), (0, 40, 2)),
    *((5, 20, 2), (10, 20, 1), (20, 20, 0), (20, 5, 0)),
)
ONE_AT_A_TIME = by_hand(
    *((0, 100, 0), (100, 40, 2), (1900, 100, 0)),
    *((3900, 40, 0), (4000, 40, 0), (5500, 40, 1)),
)
BOTH_LATE = by_hand((0, 450, 0), (100, 20, 1), (3300, 20, 0))
"""When the first is done, both others have waited for more than `LIMIT_MS`."""


def _busy(run: Run) -> Failure | None:
    """Check that no slot stays free while somebody waits."""
    slots = run.case.options["slots"]
    for step in run.steps:
        if step.waiting and len(step.running) < slots and not step.preempted:
            detail = f"it waits although only {len(step.running)} of {slots} slots are taken"
            return run.fail(detail, step.index, step.waiting[0])
    return None


def _urgent(run: Run) -> Failure | None:
    """Check that the less urgent goes first only if it came first and was patient."""
    asked = requests_of(run)
    for moment in moments(run):
        for rid in moment.joined:
            for other in moment.step.waiting:
                mine, theirs = asked[rid], asked[other]
                if mine.priority <= theirs.priority:
                    continue
                waited = moment.step.start_ns - mine.arrival_ns
                why = ""
                if earlier(theirs, mine):
                    why = f"it came {ms(mine.arrival_ns - theirs.arrival_ns)} after it"
                elif waited < PATIENCE_MS * NS_PER_MS:
                    why = f"it has waited {ms(waited)}, less than {PATIENCE_MS} ms"
                if why:
                    detail = (
                        f"with priority {mine.priority} it joins while request {other} with "
                        f"priority {theirs.priority} waits, and {why}"
                    )
                    return run.fail(detail, moment.step.index, rid)
    return None


def _aging(run: Run) -> Failure | None:
    """Check that nobody is passed by one who came much later."""
    asked = requests_of(run)
    for moment in moments(run):
        for rid in moment.joined:
            for other in moment.step.waiting:
                mine, theirs = asked[rid], asked[other]
                gap = mine.arrival_ns - theirs.arrival_ns
                if mine.priority < theirs.priority and gap > LIMIT_MS * NS_PER_MS:
                    waited = ms(moment.step.start_ns - theirs.arrival_ns)
                    detail = (
                        f"it has waited {waited} and is passed by request {rid}, which came "
                        f"{ms(gap)} later: the limit is {LIMIT_MS} ms"
                    )
                    return run.fail(detail, moment.step.index, other)
    return None


def _reference(case: Case) -> SupportsPlan:
    """Return plain continuous batching: the same slots, first come, first served."""
    return Continuous(max_running=case.options["slots"])


ASSIGNMENT = Assignment(
    name="aging",
    title="Urgent first, but nobody starves",
    task=(
        "Write a policy for `slots` places in the batch. More urgent requests go first, until "
        "somebody has waited long enough."
    ),
    rules=(
        Invariant(
            "slots",
            5,
            "At most `slots` requests are in the batch.",
            "Those in view.running and those that you let in share the slots.",
            at_most_slots,
        ),
        Invariant(
            "busy",
            25,
            "No slot stays free while somebody waits.",
            "How many can join in one step? Count the free slots.",
            _busy,
        ),
        Invariant(
            "serve",
            5,
            "Every step computes something for everyone in the batch.",
            "The plan names everybody in view.running, whoever joins beside them.",
            everyone_moves,
        ),
        Invariant(
            "keep",
            5,
            "Nobody is thrown out: there is memory for all.",
            "Urgency decides who joins, not who leaves.",
            nobody_thrown_out,
        ),
        Invariant(
            "order",
            10,
            "Of two requests with one priority, the first to come is the first to join.",
            "Look at how your sort breaks ties.",
            in_order_of(lambda r: r.priority),
        ),
        Invariant(
            "urgent",
            20,
            "A request goes before a more urgent one only if it came first and has waited "
            f"{PATIENCE_MS} ms.",
            "A smaller number is more urgent, and times in the view are nanoseconds.",
            _urgent,
        ),
        Invariant(
            "aging",
            15,
            f"Nobody is passed by a request that came more than {LIMIT_MS} ms later.",
            "How long may an urgent request be preferred? Compare arrivals, not only priorities.",
            _aging,
        ),
        Performance(
            "speed",
            15,
            "The makespan is about that of plain continuous batching.",
            "Count the steps until a prompt is done: what does a step cost that computes little?",
            makespan_ms,
            makespan_bound_ms,
            cases=("flood",),
            full_at=1.5,
            none_at=2.5,
        ),
    ),
    cases=(
        Case("hand", EIGHT, {"slots": 4}),
        Case("one slot", ONE_AT_A_TIME, {"slots": 1}),
        Case("both late", BOTH_LATE, {"slots": 1}),
        Case("flood", requests(40, 9.0, (0, 0, 0, 0, 1, 2), seed=1), {"slots": 4}),
        Case("mix", requests(40, 7.0, (0, 0, 1, 2), seed=2), {"slots": 4}),
    ),
    reference=_reference,
    hours=1.5,
)
