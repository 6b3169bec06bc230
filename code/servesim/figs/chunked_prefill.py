"""The live figure of the chapter on chunked: a token budget against stalls and against the wait."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from .. import policies, svg, workload
from ..engine import simulate
from ..errors import InputError
from ..metrics import Result
from ..request import NS_PER_MS, NS_PER_S, Request

_N = 20
_SEED = 23
_SHORT, _LONG = 256, 4096
_OUTPUT = (40, 160)
_BUDGETS = (128, 512, 1024)
_WHOLE = 0  # stands for no budget: prompts are taken whole
_WINDOW = (-0.5, 3.0)  # seconds around the arrival of the long prompt that is looked at


def chunked(
    token_budget: int = 512,
    rate: float = 2.0,
    long_percent: int = 15,
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw what a token budget does to the tail of ITL and to TTFT, and the gaps around a stall.

    20 requests at the default prices with outputs of 40 to 160 tokens. Prompts have 256 tokens;
    some have 4096. Neither the pattern of the gaps nor the order of the lengths depends on a
    parameter.

    Parameters
    ----------
    token_budget : int
        Most tokens in a step.
    rate : float
        Mean arrivals per second (Poisson).
    long_percent : int
        Share of long prompts.
    ghost : dict, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    if not 0 <= long_percent <= 100:
        raise InputError(f"chunked: long_percent is from 0 to 100, not {long_percent!r}")
    budgets = sorted({*_BUDGETS, token_budget})
    runs = {b: _run(b, rate, long_percent) for b in budgets}
    whole = _run(_WHOLE, rate, long_percent)
    plane = svg.Chart(
        svg.Axis("P99 ITL (ms)", "log"),
        svg.Axis("Mean TTFT (ms)", "log"),
        title="What a budget buys, and what it costs",
        height=200,
        legend="top",
    )
    before = None
    if ghost:
        before = int(ghost["token_budget"]), float(ghost["rate"]), int(ghost["long_percent"])
        if before[1:] != (rate, long_percent):
            plane.line("default", *_curve([*_BUDGETS, _WHOLE], *before[1:]), ghost=True)
        plane.scatter("", *_curve(before[:1], *before[1:]), ghost=True)
    every = [*budgets, _WHOLE]
    plane.line("budgets from 128 up, and none", *_curve(every, rate, long_percent), color=1)
    plane.scatter("this budget", *_curve([token_budget], rate, long_percent), color=2)
    plane.scatter("no budget", *_curve([_WHOLE], rate, long_percent), color=3)

    stalls = svg.Chart(
        svg.Axis("Time since that prompt arrived (s)", domain=_WINDOW),
        "Gap between two tokens (ms)",
        title=f"The gaps when one {'long' if long_percent else 'short'} prompt comes",
        height=150,
        legend="top",
    )
    if before:
        stalls.step("default", *_gaps(*before), ghost=True)
    stalls.step("no budget", *_gaps(_WHOLE, rate, long_percent), color=3)
    stalls.step("this budget", *_gaps(token_budget, rate, long_percent), color=2)
    summary = (
        f"{rate:g} requests/s, {long_percent} % of the prompts long. "
        f"{_told(f'Budget {token_budget}', runs[token_budget])} "
        f"{_told('No budget', whole)}"
    )
    if before:
        summary += f" {_told('Default', _run(*before))}"
    return svg.figure(
        "chunked",
        plane,
        stalls,
        title="A token budget: tail of ITL against TTFT, and the gaps around a stall",
        summary=summary,
        table=_table([*((svg.fmt(b), run) for b, run in runs.items()), ("none", whole)]),
    )


@functools.lru_cache(maxsize=8)
def _requests(rate: float, long_percent: int) -> tuple[Request, ...]:
    """Return the requests; the k-th to become long does so whatever the rate."""
    asked = workload.poisson(_N, rate, _SHORT, _OUTPUT, _SEED)
    long = set(_order()[: round(_N * long_percent / 100)])
    return tuple(replace(r, prompt_len=_LONG) if r.id in long else r for r in asked)


def _order() -> list[int]:
    """Return the requests in the order in which they become long; first one from the middle."""
    rng = random.Random(_SEED)
    dice = [rng.random() for _ in range(_N)]
    order = sorted(range(_N), key=dice.__getitem__)
    first = next(i for i in order if _N // 4 <= i < _N // 2)
    return [first, *(i for i in order if i != first)]


@functools.lru_cache(maxsize=256)
def _run(budget: int, rate: float, long_percent: int) -> Result:
    """Serve the 20 requests; the figure asks for the same runs again and again."""
    return simulate(_requests(rate, long_percent), _policy(budget))


@functools.lru_cache(maxsize=32)
def _gaps(budget: int, rate: float, long_percent: int) -> tuple[list[float], list[float]]:
    """Return when gaps begin, in seconds after the long prompt's arrival, and how long they are.

    All who decode get a token in each step, so at any moment they have the same gap. Where
    nobody decodes there is none, and nobody is held up.
    """
    zero = _requests(rate, long_percent)[_order()[0]].arrival_ns
    low, high = (zero + round(t * NS_PER_S) for t in _WINDOW)
    found: set[tuple[int, int]] = set()
    records = _run(budget, rate, long_percent).records
    ends = zip(*map(records.column, ("first_token_ns", "last_token_ns")), strict=True)
    for row, (first, last) in enumerate(ends):
        if first < high and last > low:
            found.update(pairwise(records[row].token_times_ns()))
    times, lengths = [low], [0]
    for begin, end in sorted(found):
        if end > low and begin < high:
            if begin <= times[-1]:
                times.pop()
                lengths.pop()
            times += [max(low, begin), end]
            lengths += [end - begin, 0]
    return [(min(t, high) - zero) / NS_PER_S for t in times], [n / NS_PER_MS for n in lengths]


def _policy(budget: int) -> policies.Policy:
    """Return the policy for a budget; 0 for none."""
    return policies.Chunked(budget) if budget else policies.Continuous()


def _tail(result: Result) -> tuple[float, float]:
    """Return P99 ITL and mean TTFT, in milliseconds."""
    return result.itl_ms.percentile(99) or 0.0, result.ttft_ms.mean or 0.0


def _curve(
    budgets: Sequence[int], rate: float, long_percent: int
) -> tuple[list[float], list[float]]:
    """Return P99 ITL and mean TTFT of several budgets."""
    points = [_tail(_run(b, rate, long_percent)) for b in budgets]
    return [x for x, _ in points], [y for _, y in points]


def _told(name: str, result: Result) -> str:
    """Say how one run went."""
    tail, ttft = _tail(result)
    return (
        f"{name}: P99 ITL {tail:.0f} ms, longest gap {result.itl_ms.max or 0.0:,.0f} ms, "
        f"mean TTFT {ttft:,.0f} ms."
    )


def _table(
    runs: Sequence[tuple[str, Result]],
) -> tuple[list[str], list[list[svg.Cell]]]:
    """Return one row per budget."""
    header = ["budget", *(f"{p} ITL (ms)" for p in ("P50", "P95", "P99")), "longest gap (ms)"]
    header += ["mean TTFT (ms)", "P99 TTFT (ms)", "throughput (tokens/s)"]
    rows: list[list[svg.Cell]] = []
    for name, r in runs:
        gaps = [r.itl_ms.percentile(p) for p in (50, 95, 99)]
        ends = [r.ttft_ms.mean, r.ttft_ms.percentile(99), r.throughput_tok_s]
        rows.append([name, *gaps, r.itl_ms.max, *ends])
    return header, rows
