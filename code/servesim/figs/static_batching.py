"""The live figure of the chapter on static batching: who sits idle until the end."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace

from .. import policies, svg, workload
from ..engine import simulate
from ..errors import InputError
from ..lives import lives
from ..metrics import Record, Result
from ..request import NS_PER_S

_N = 16
_SEED = 10  # chosen: these 16 lie close to the formulas, others scatter more
_MEAN = 175
_SIZES = range(1, 17)


def static_waste(
    batch_size: int = 4, spread: int = 125, rate: float = 0.5, ghost: dict[str, float] | None = None
) -> svg.Figure:
    """Draw 16 requests under static batching, with the slots that idle, and the share wasted.

    Neither the order of the output lengths nor that of the gaps depends on a parameter: a
    slider stretches them.

    Parameters
    ----------
    batch_size : int
        Requests in a group.
    spread : int
        Output lengths are uniform between 175 - `spread` and 175 + `spread` tokens.
    rate : float
        Mean arrivals per second (Poisson).
    ghost : dict, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    if not 0 <= spread < _MEAN:
        top = _MEAN - 1
        raise InputError(f"static_waste: spread is from 0 to {top} tokens, not {spread!r}")
    result = _run(batch_size, spread, rate)
    groups = _groups(result)
    slots = sum(len(g) * max(r.output_tokens for r in g) for _, g in groups)
    share = 100 * (slots - result.output_tokens) / slots
    formula = _formula(batch_size, spread)

    lived = _lives(result, groups)
    timeline = svg.Timeline(unit="s", title="Each request, and its slot until the group is done")
    for r in result.records:
        first = (r.first_token_ns or 0) / NS_PER_S
        arrival = r.request.arrival_s
        timeline.row(f"r{r.request.id}", lived[r.request.id], arrival=arrival, first_token=first)

    chart = svg.Chart(
        svg.Axis("Batch size", domain=(0, 17)),
        svg.Axis("Slot-steps wasted (%)", domain=(0, 60)),
        title="Share of slot-steps in which the slot idles",
        height=150,
        legend="top",
    )
    curve = [_formula(b, spread) for b in _SIZES]
    chart.line(f"formula, 175 ± {spread} tokens", _SIZES, curve)
    chart.scatter("this run", [batch_size], [share], color=2)
    if ghost:
        size, other, pace = int(ghost["batch_size"]), int(ghost["spread"]), ghost["rate"]
        if other != spread:
            curve = [_formula(b, other) for b in _SIZES]
            chart.line(f"formula, 175 ± {other}", _SIZES, curve, ghost=True)
        end = _run(size, other, pace).end_ns / NS_PER_S
        timeline.vline(end, f"default ends, {end:.1f} s")

    filling = _mean(fills - r.request.arrival_ns for fills, g in groups for r in g)
    ttft = _mean(r.ttft_ns or 0 for r in result.records)
    summary = (
        f"Batch size {batch_size}, 175 ± {spread} output tokens, {rate:g} requests/s: "
        f"{share:.1f} % of the slot-steps are idle (the formula says {formula:.1f} %); "
        f"mean TTFT {ttft:.2f} s, of which {filling:.2f} s go to waiting for the group to fill."
    )
    return svg.figure(
        "static-waste",
        timeline,
        chart,
        title="Static batching: waiting requests, groups and idle slots",
        summary=summary,
        table=_table(groups),
    )


def _run(batch_size: int, spread: int, rate: float) -> Result:
    """Serve the 16 requests in groups."""
    asked = workload.poisson(_N, rate, 512, 1, _SEED)
    rng = random.Random(_SEED + 1)  # else long gaps would go with long outputs
    outputs = [_MEAN + round(spread * (2 * rng.random() - 1)) for _ in asked]
    requests = [replace(r, output_len=n) for r, n in zip(asked, outputs, strict=True)]
    return simulate(requests, policies.Static(batch_size))


def _groups(result: Result) -> list[tuple[int, list[Record]]]:
    """Return the groups that ran, each with the moment at which it was complete, in ns."""
    groups: dict[int, list[Record]] = {}
    for r in result.records:
        groups.setdefault(r.first_scheduled_ns or 0, []).append(r)
    return [(g[-1].request.arrival_ns, g) for g in groups.values()]


def _formula(batch_size: int, spread: int) -> float:
    """Return 100 * (1 - mean / expected longest of a group), for uniform whole lengths."""
    low, count = _MEAN - spread, 2 * spread + 1
    longest = low + math.fsum(1 - (k / count) ** batch_size for k in range(1, count))
    return 100 * (1 - _MEAN / longest)


def _mean(times_ns: Iterable[int]) -> float:
    """Return the mean of 16 times, in seconds."""
    return sum(times_ns) / _N / NS_PER_S


def _lives(result: Result, groups: list[tuple[int, list[Record]]]) -> dict[int, list[svg.Segment]]:
    """Return what each request was doing when, and its slot after it, in seconds."""
    lived = {
        rid: [s for s in life if s.kind != "waiting"]
        for rid, life in lives(result, NS_PER_S).items()
    }
    for fills, group in groups:
        end = max(r.last_token_ns or 0 for r in group) / NS_PER_S
        for r in group:
            arrives, complete = r.request.arrival_s, fills / NS_PER_S
            start, left = (r.first_scheduled_ns or 0) / NS_PER_S, (r.last_token_ns or 0) / NS_PER_S
            lived[r.request.id][:0] = [
                svg.Segment(arrives, complete, "waiting", "for its group to fill"),
                svg.Segment(complete, start, "waiting", "for the group before to end"),
            ]
            lived[r.request.id].append(svg.Segment(left, end, "idle", "its slot makes nothing"))
    return {rid: [s for s in life if s.start < s.end] for rid, life in lived.items()}


def _table(
    groups: list[tuple[int, list[Record]]],
) -> tuple[list[str], list[list[svg.Cell]]]:
    """Return one row per group."""
    header = [
        *("group", "complete (s)", "starts (s)", "ends (s)", "longest output", "tokens"),
        *("idle slot-steps", "wasted (%)"),
    ]
    rows: list[list[svg.Cell]] = []
    for fills, group in groups:
        lengths = [r.output_tokens for r in group]
        slots, tokens = len(group) * max(lengths), sum(lengths)
        times = (fills, group[0].first_scheduled_ns or 0, max(r.last_token_ns or 0 for r in group))
        name = f"r{group[0].request.id}–r{group[-1].request.id}"
        if len(group) == 1:
            name = f"r{group[0].request.id}"
        wasted = 100 * (slots - tokens) / slots
        cells = [*(t / NS_PER_S for t in times), max(lengths), tokens, slots - tokens, wasted]
        rows.append([name, *cells])
    return header, rows
