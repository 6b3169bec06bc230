"""Open league: the most requests served in time, on workloads that nobody has seen."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from ... import workload
from ...cost import OPT_13B_A100, Affine
from ...engine import SupportsPlan
from ...errors import InputError
from ...kv import KVCache
from ...metrics import SLO, Result
from ...policies import VLLM
from ...request import NS_PER_MS, NS_PER_S, Request
from ..assignment import (
    Assignment,
    Case,
    Failure,
    FileRule,
    Invariant,
    Performance,
    Run,
    literal,
)

CACHE = KVCache(blocks=700, block_size=16)
SMALL = KVCache(blocks=100, block_size=16)
SLOW = Affine(base_ms=200)

IN_TIME = SLO(ttft_ms=2000, tpot_ms=50)
"""What a request must keep to count (invented)."""

PATIENCE_S = 30
"""Nobody waits longer than this for its first token."""

WORDS = 100
METRICS = ("TTFT", "TPOT", "ITL", "goodput", "throughput", "attainment")


def chat(n: int, rate: float, seed: int) -> tuple[Request, ...]:
    """Draw short prompts, more of them than can be served."""
    return tuple(workload.poisson(n, rate, (20, 600), (20, 200), seed=seed))


def documents(n: int, rate: float, seed: int) -> tuple[Request, ...]:
    """Draw prompts of which three in ten are long."""
    rng = random.Random(seed)
    drawn = workload.poisson(n, rate, (100, 600), (40, 150), seed=seed)
    return tuple(
        replace(r, prompt_len=rng.randint(1500, 4000)) if rng.random() < 0.3 else r for r in drawn
    )


def bursts(n: int, rate: float, seed: int) -> tuple[Request, ...]:
    """Draw arrivals that come in bursts."""
    return tuple(workload.gamma(n, rate, 2.5, (100, 1000), (20, 200), seed=seed))


TURNS = tuple(
    Request(i, at * NS_PER_MS, 800, 45) for i, at in enumerate((0, 100, 9000, 18_000, 27_000))
)
"""For `SMALL`, in which only one of them fits, and a GPU that needs 9 s for each."""


def _everyone(run: Run) -> Failure | None:
    """Check that everyone gets a first token in bounded time."""
    for record in run.result.records:
        if record.ttft_ns is None or record.ttft_ns <= PATIENCE_S * NS_PER_S:
            continue
        rid, first = record.request.id, record.first_token_ns
        step = next((s.index for s in run.steps if s.end_ns == first), None)
        later = [r for r in run.result.records if r.request.arrival_ns > record.request.arrival_ns]
        firsts = [r.first_token_ns for r in later if r.first_token_ns is not None]
        passed = sum(first is not None and time < first for time in firsts)
        detail = (
            f"its first token comes after {record.ttft_ns / NS_PER_S:.1f} s, the limit is "
            f"{PATIENCE_S} s; {passed} requests that came later had theirs before it"
        )
        return run.fail(detail, step, rid)
    return None


def _goodput(result: Result) -> float | None:
    return result.goodput_req_s(IN_TIME)


def _bound(case: Case) -> float:
    """Return the requests per second if all were in time and the makespan as short as can be."""
    return len(case.requests) * NS_PER_S / OPT_13B_A100.lower_bound(case.requests, case.kv)


def _defense(text: str) -> Failure | None:
    """Check that there is a text worth reading; whether it convinces is for a reader to say."""
    try:
        told = literal(text, "DEFENSE")
    except InputError as error:
        return Failure("DEFENSE", str(error))
    words = str(told).split() if isinstance(told, str) else []
    missing = ""
    if len(words) < WORDS:
        missing = f"it has {len(words)} words, write {WORDS} or more"
    elif not any(re.search(rf"\b{m}\b", str(told), re.IGNORECASE) for m in METRICS):
        missing = f"it names no metric: say what your policy gives and takes in {METRICS[0]}, say"
    elif not re.search(r"\d", str(told)):
        missing = "it has no number: compare two runs"
    return Failure("DEFENSE", missing) if missing else None


def _reference(case: Case) -> SupportsPlan:
    del case
    return VLLM()


def _goodput_rule(case: str, points: float, hint: str) -> Performance:
    return Performance(
        case,
        points,
        f"On {case} the goodput is nearer to the bound than that of vLLM's rules.",
        hint,
        _goodput,
        _bound,
        unit="requests/s",
        cases=(case,),
        higher_is_better=True,
        full_at=0.95,
        none_at=1.0,
    )


ASSIGNMENT = Assignment(
    name="league",
    title="Open league: as many as possible in time",
    task=(
        f"Write a policy with the best goodput you can: requests per second with a TTFT of at "
        f"most {IN_TIME.ttft_ms} ms and a TPOT of at most {IN_TIME.tpot_ms} ms. Defend it in "
        f"{WORDS} words."
    ),
    rules=(
        Invariant(
            "everyone",
            15,
            f"Everyone is served, and waits no longer than {PATIENCE_S} s for the first token.",
            "Whoever is late anyway may wait, but not for ever.",
            _everyone,
        ),
        _goodput_rule(
            "chat", 25, "Nobody can serve all of them. Whom is it too late to serve in time?"
        ),
        _goodput_rule(
            "documents", 25, "What does a long prompt cost the others, and when is it worth it?"
        ),
        _goodput_rule("bursts", 25, "What do you do with the queue that a burst leaves behind?"),
        FileRule(
            "defense",
            10,
            f"`DEFENSE` is a text of at least {WORDS} words that names a metric and a number.",
            "Say what your policy does, whom it fails, and which run would prove you wrong.",
            _defense,
        ),
    ),
    cases=(
        Case("turns", TURNS, cost=SLOW, kv=SMALL),
        Case("chat", chat(100, 12.0, seed=1), kv=CACHE),
        Case("documents", documents(60, 7.0, seed=2), kv=CACHE),
        Case("bursts", bursts(100, 12.0, seed=3), kv=CACHE),
    ),
    reference=_reference,
    hours=8.0,
)
