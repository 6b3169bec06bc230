"""Two tenants with different needs on one server: fair shares, and a promise to one of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from ... import workload
from ...engine import SupportsPlan
from ...ledger import Record
from ...policies import Chunked
from ...request import NS_PER_MS, NS_PER_S, Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run
from .common import (
    at_most_slots,
    everyone_decodes,
    in_order_of,
    makespan_bound_ms,
    makespan_ms,
    ms,
    requests_of,
)

CHAT, BATCH = "chat", "batch"

LEAD = 5000
"""Tokens that one tenant may get ahead of the other while both have somebody waiting."""

TTFT_MS, GAP_MS = 2000, 200
"""What each of chat's requests is promised: its first token, and no longer gap (invented)."""

KEPT = 0.9
"""Share of chat's requests for which it is to be kept."""

FULL_STEP = 256
"""A step with so many tokens may leave a slot free: it is busy enough."""

SHORT, LONG = ((50, 300), (10, 30)), ((2000, 4000), (20, 60))
EVEN = ((200, 1200), (40, 120))
"""Ranges of prompt and output lengths."""

Lengths = tuple[tuple[int, int], tuple[int, int]]


def stream(
    tenant: str, n: int, rate: float, lengths: Lengths, seed: int, start_s: float = 0
) -> list[tuple[int, str, int, int]]:
    """Draw one tenant's Poisson arrivals, as rows for `together`."""
    prompt, output = lengths
    drawn = workload.poisson(n=n, rate=rate, prompt=prompt, output=output, seed=seed)
    start = round(start_s * NS_PER_S)
    return [(r.arrival_ns + start, tenant, r.prompt_len, r.output_len) for r in drawn]


def together(*streams: list[tuple[int, str, int, int]]) -> tuple[Request, ...]:
    """Merge the tenants' rows into one workload, in order of arrival."""
    rows = enumerate(sorted(chain(*streams)))
    return tuple(Request(i, at, p, o, tenant=who) for i, (at, who, p, o) in rows)


def by_hand(*rows: tuple[int, str, int]) -> tuple[Request, ...]:
    """Return a few requests to follow with a pencil: arrival in ms, tenant and prompt of each."""
    return together([(at * NS_PER_MS, who, prompt, 20) for at, who, prompt in rows])


EQUALS = by_hand(*[(0, BATCH, 4400)] * 3, *[(0, CHAT, 4400)] * 3)
UNEQUALS = by_hand(*[(0, BATCH, 4400)] * 3, *[(0, CHAT, 300)] * 12)
LATE = by_hand(*[(0, BATCH, 4400)] * 3, *[(900, CHAT, 2600)] * 4)
"""For one slot, so that nearly everyone waits."""


def _busy(run: Run) -> Failure | None:
    """Check that no slot stays free in a step with few tokens while somebody waits."""
    slots = run.case.options["slots"]
    for step in run.steps:
        tokens = sum(s.tokens for s in step.scheduled)
        if step.waiting and len(step.running) < slots and tokens < FULL_STEP:
            detail = (
                f"it waits although only {len(step.running)} of {slots} slots are taken and the "
                f"step has no more than {tokens} tokens"
            )
            return run.fail(detail, step.index, step.waiting[0])
    return None


def _fair(run: Run) -> Failure | None:
    """Check that neither tenant gets far ahead while both have somebody waiting."""
    asked = requests_of(run)
    got: Counter[str] = Counter()
    for step in run.steps:
        queues = {asked[rid].tenant: rid for rid in reversed(step.waiting)}
        if len(queues) < 2:
            got.clear()
            continue
        for s in step.scheduled:
            got[asked[s.id].tenant] += s.tokens
        ahead, behind = sorted(queues, key=lambda tenant: -got[tenant])
        if got[ahead] - got[behind] > LEAD:
            detail = (
                f"while both tenants have had somebody waiting, {ahead} got {got[ahead]} tokens "
                f"and {behind}, whose request this is, {got[behind]}: the limit is a lead of {LEAD}"
            )
            return run.fail(detail, step.index, queues[behind])
    return None


def _promise(run: Run) -> Failure | None:
    """Check that enough of chat's requests keep the promise."""
    records = [r for r in run.result.records if r.request.tenant == CHAT]
    broken = [r for r in records if _why_broken(r)]
    if len(broken) <= (1 - KEPT) * len(records):
        return None
    first = broken[0]
    steps = [s.index for s in run.steps if any(x.id == first.request.id for x in s.scheduled)]
    detail = (
        f"{len(broken)} of {len(records)} chat requests break the promise; this one has "
        f"{_why_broken(first)}"
    )
    return run.fail(detail, steps[-1] if steps else None, first.request.id)


def _why_broken(record: Record) -> str:
    """Say how a request of chat breaks the promise; nothing if it keeps it."""
    if record.ttft_ns is None:
        return "no token at all"
    if record.ttft_ns > TTFT_MS * NS_PER_MS:
        return f"a TTFT of {ms(record.ttft_ns)}, promised are {TTFT_MS} ms"
    gap = max((value for value, _ in record.gaps.counts()), default=0)
    if gap > GAP_MS * NS_PER_MS:
        return f"a gap of {ms(gap)} between tokens, promised are {GAP_MS} ms"
    return ""


def _reference(case: Case) -> SupportsPlan:
    """Return chunked prefill that knows no tenants: first come, first served."""
    return Chunked(token_budget=512, max_running=case.options["slots"])


ASSIGNMENT = Assignment(
    name="tenants",
    title="Two tenants, one server",
    task=(
        f"Write a policy for `slots` places that two tenants share fairly, while {CHAT} keeps a "
        f"promise even if {BATCH} floods the queue."
    ),
    rules=(
        Invariant(
            "slots",
            10,
            "At most `slots` requests are in the batch.",
            "Those in view.running and those that you let in share the slots.",
            at_most_slots,
        ),
        Invariant(
            "decodes",
            10,
            "Everyone that decodes gets its token in every step.",
            "Serve the decodes first. What is left of a step's tokens is for prompts.",
            everyone_decodes,
        ),
        Invariant(
            "busy",
            10,
            f"No slot stays free while somebody waits, unless the step has {FULL_STEP} tokens.",
            "May a tenant use a slot that the other one does not need now?",
            _busy,
        ),
        Invariant(
            "order",
            10,
            "Of one tenant's requests, the first to come is the first to join.",
            "Fairness is between tenants. Within one it is first come, first served.",
            in_order_of(lambda r: r.tenant),
        ),
        Invariant(
            "fair",
            30,
            "While both tenants have somebody waiting, neither gets more than "
            f"{LEAD} tokens ahead of the other.",
            "Count what each tenant gets. What should a tenant be credited for a time in which it "
            "asked for nothing?",
            _fair,
            cases=("equals", "unequals", "late", "both"),
        ),
        Invariant(
            "promise",
            20,
            f"At least {KEPT:.0%} of {CHAT}'s requests have a TTFT of at most {TTFT_MS} ms, and no "
            f"gap above {GAP_MS} ms between their tokens.",
            "Tenants share two things: slots, and the tokens of each step.",
            _promise,
            cases=("flood",),
        ),
        Performance(
            "speed",
            10,
            "The makespan is about that of chunked prefill without tenants.",
            "How many tokens does a full step have?",
            makespan_ms,
            makespan_bound_ms,
            cases=("flood",),
            full_at=1.5,
            none_at=2.5,
        ),
    ),
    cases=(
        Case("equals", EQUALS, {"slots": 1}),
        Case("unequals", UNEQUALS, {"slots": 1}),
        Case("late", LATE, {"slots": 1}),
        Case(
            "both",
            together(stream(CHAT, 40, 20.0, EVEN, seed=5), stream(BATCH, 25, 20.0, EVEN, seed=6)),
            {"slots": 8},
        ),
        Case(
            "flood",
            together(stream(CHAT, 20, 1.5, SHORT, seed=1), stream(BATCH, 25, 20.0, LONG, seed=2)),
            {"slots": 8},
        ),
    ),
    reference=_reference,
    hours=5.0,
)
