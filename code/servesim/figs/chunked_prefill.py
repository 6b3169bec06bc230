"""The live figure of the chapter on chunked: a token budget against stalls and against the wait."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import policies, svg, workload
from ..engine import Engine, simulate
from ..errors import InputError
from ..metrics import Result
from ..request import NS_PER_MS, NS_PER_S, Request

_N = 48
_SEED = 5
_SHORT, _LONG = 256, 4096
_OUTPUT = (40, 160)
_BUDGETS = (128, 256, 512, 1024, 4096)
_WHOLE = 0  # stands for no budget: prompts are taken whole
_WINDOW = (-0.5, 3.0)  # seconds around the arrival of the long prompt that is looked at
_AHEAD = NS_PER_S  # longer than any step that may reach into the window


def chunked(
    token_budget: int = 512,
    rate: float = 2.0,
    long_percent: int = 15,
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw what a token budget does to the tail of ITL and to TTFT, and the steps around a stall.

    48 requests at the default prices with outputs of 40 to 160 tokens. Prompts have 256 tokens;
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
            plane.line("default", *_curve(_BUDGETS, *before[1:]), ghost=True)
        plane.scatter("", *_curve(before[:1], *before[1:]), ghost=True)
    plane.line("budgets from 128 to 4096", *_curve(budgets, rate, long_percent), color=1)
    plane.scatter("this budget", *_curve([token_budget], rate, long_percent), color=2)
    plane.scatter("no budget", *_curve([_WHOLE], rate, long_percent), color=3)

    stalls = svg.Chart(
        svg.Axis("Time since that prompt arrived (s)", domain=_WINDOW),
        "Length of the step (ms)",
        title=f"The steps when one {'long' if long_percent else 'short'} prompt comes",
        height=150,
        legend="top",
    )
    if before:
        stalls.step("default", *_steps(*before), ghost=True)
    stalls.step("no budget", *_steps(_WHOLE, rate, long_percent), color=3)
    stalls.step("this budget", *_steps(token_budget, rate, long_percent), color=2)
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
        title="A token budget: tail of ITL against TTFT, and the steps around a stall",
        summary=summary,
        table=_table([*((svg.fmt(b), run) for b, run in runs.items()), ("none", whole)]),
    )


def _requests(rate: float, long_percent: int) -> list[Request]:
    """Return the requests; the k-th to become long does so whatever the rate."""
    n = _N
    asked = workload.poisson(n, rate, _SHORT, _OUTPUT, _SEED)
    long = set(_order()[: round(n * long_percent / 100)])
    return [replace(r, prompt_len=_LONG) if r.id in long else r for r in asked]


def _order() -> list[int]:
    """Return the requests in the order in which they become long; first one from the middle."""
    rng = random.Random(_SEED)
    dice = [rng.random() for _ in range(_N)]
    order = sorted(range(_N), key=dice.__getitem__)
    first = next(i for i in order if _N // 4 <= i < _N // 2)
    return [first, *(i for i in order if i != first)]


@functools.lru_cache(maxsize=256)
def _run(budget: int, rate: float, long_percent: int) -> Result:
    """Serve the 48 requests; the figure asks for the same runs again and again."""
    return simulate(_requests(rate, long_percent), _policy(budget))


@functools.lru_cache(maxsize=32)
def _steps(budget: int, rate: float, long_percent: int) -> tuple[list[float], list[float]]:
    """Return when steps start, in seconds after the long prompt's arrival, and their lengths."""
    requests = _requests(rate, long_percent)
    zero = requests[_order()[0]].arrival_ns
    low, high = (zero + round(t * NS_PER_S) for t in _WINDOW)
    engine = Engine(requests, _policy(budget))
    # Equal steps are taken together up to an arrival well before the window, and one by one, on
    # record, to its end. Most of a run needs neither.
    last = max((r.arrival_ns for r in requests if r.arrival_ns < low - _AHEAD), default=0)
    while engine.view.clock_ns < last:
        engine.advance()
    engine.skip, engine.record_steps = False, True
    while engine.view.clock_ns < high and engine.advance():
        pass
    times: list[int] = [low]
    lengths: list[int] = [0]
    for step in engine.steps:
        if step.end_ns > low and step.start_ns < high:
            if step.start_ns <= times[-1]:
                times.pop()
                lengths.pop()
            times += [max(low, step.start_ns), step.end_ns]
            lengths += [step.cost_ns, 0]
    return [(min(t, high) - zero) / NS_PER_S for t in times], [c / NS_PER_MS for c in lengths]


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
