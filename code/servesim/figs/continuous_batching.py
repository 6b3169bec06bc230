"""The live figure of the chapter on continuous batching: slots against throughput and latency."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from .. import policies, svg, workload
from ..engine import simulate
from ..errors import InputError
from ..metrics import Result
from ..request import Request

_N = 50
_SEED = 453
_PROMPT = 512
_OUTPUTS = (16, 32, 64, 160)
_SLOTS = (1, 2, 4, 8, 16, 32, 64)


def batching(
    rate: float = 4.0,
    max_batch: int = 16,
    policy: str = "continuous",
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw throughput and latency over the number of slots, and where one choice lies.

    50 requests with prompts of 512 tokens and outputs of 16, 32, 64 or 160, at the default
    prices. Their lengths and the pattern of their gaps do not depend on a parameter.

    Parameters
    ----------
    rate : float
        Mean arrivals per second (Poisson).
    max_batch : int
        Slots: most requests in a step (``max_running``), or the size of a static group.
    policy : {"continuous", "static"}
    ghost : dict, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is out of range or the policy is not known.
    """
    if policy not in ("continuous", "static"):
        raise InputError(f"batching: no policy {policy!r}; use continuous or static")
    slots = sorted({*_SLOTS, max_batch})
    before = None
    if ghost:
        before = str(ghost.get("policy", policy)), float(ghost["rate"]), int(ghost["max_batch"])
    panels = [
        _chart(title, key, slots, (policy, rate, max_batch), before)
        for title, key in (
            ("Throughput (tokens/s)", "throughput"),
            ("Mean TTFT (ms)", "ttft"),
            ("Mean TPOT (ms)", "tpot"),
            ("P99 ITL (ms)", "itl"),
        )
    ]
    asked = rate * sum(_OUTPUTS) / len(_OUTPUTS)
    panels[0].hline(asked, f"asked for: {svg.fmt(asked)}")
    panels[0].vline(max_batch, f"{max_batch} slots")
    for panel in panels[1:]:
        panel.vline(max_batch)
    summary = _told(policy, rate, max_batch)
    if before:
        summary += f" Default: {_told(*before)}"
        if before[2] != max_batch:
            panels[0].vline(before[2], f"default: {before[2]}")
    header = ["slots", "throughput (tokens/s)", "mean TTFT (ms)", "mean TPOT (ms)"]
    header += ["P99 ITL (ms)", "slots in use (mean)"]
    rows: list[list[svg.Cell]] = []
    for n in slots:
        run = _run(policy, n, rate)
        rows.append([str(n), *(_value(run, key) for key in _KEYS)])
    return svg.figure(
        "batching",
        *panels,
        title="Throughput and latency over the number of slots",
        summary=summary,
        table=(header, rows),
        share_x=True,
    )


_KEYS = ("throughput", "ttft", "tpot", "itl", "running")


@functools.lru_cache(maxsize=8)
def _requests(rate: float) -> list[Request]:
    return workload.poisson(_N, rate, _PROMPT, list(_OUTPUTS), _SEED)


@functools.lru_cache(maxsize=128)
def _run(policy: str, slots: int, rate: float) -> Result:
    """Serve the 50 requests; the figure asks for the same runs again and again."""
    if policy == "static":
        return simulate(_requests(rate), policies.Static(slots))
    ample, most = _ample(rate)
    if slots >= most:
        return ample  # slots that are never taken change nothing
    return simulate(_requests(rate), policies.Continuous(slots))


@functools.lru_cache(maxsize=32)
def _ample(rate: float) -> tuple[Result, int]:
    """Serve them with slots to spare, and tell how many were taken at the busiest moment."""
    result = simulate(_requests(rate), policies.Continuous())
    joins = [(t, 1) for t in result.records.column("first_scheduled_ns")]
    leaves = [(t, -1) for t in result.records.column("last_token_ns")]
    return result, max(accumulate(change for _, change in sorted(joins + leaves)))


def _value(result: Result, key: str) -> float | None:
    """Return one figure of a run, in the unit of its panel."""
    if key == "throughput":
        return result.throughput_tok_s
    if key == "ttft":
        return result.ttft_ms.mean
    if key == "tpot":
        return result.tpot_ms.mean
    return result.itl_ms.percentile(99) if key == "itl" else result.mean_running


def _chart(
    title: str,
    key: str,
    slots: Sequence[int],
    chosen: tuple[str, float, int],
    before: tuple[str, float, int] | None,
) -> svg.Chart:
    """Return the panel of one figure: its curve over the slots and the chosen point."""
    policy, rate, max_batch = chosen
    scale: svg.ScaleKind = "log" if key == "ttft" else "linear"
    chart = svg.Chart(svg.Axis("Slots", "log2"), svg.Axis(title, scale), height=120, legend="top")
    if before:
        was, pace, place = before
        old = {n: _value(_run(was, n, pace), key) for n in {*slots, place}}
        if (was, pace) != (policy, rate):
            name = f"default: {was}, {pace:g} requests/s"
            chart.line(name, slots, [old[n] for n in slots], ghost=True)
        chart.scatter("", [place], [old[place]], ghost=True)
    curve = [_value(_run(policy, n, rate), key) for n in slots]
    chart.line(f"{policy}, {rate:g} requests/s", slots, curve, color=1)
    at = _value(_run(policy, max_batch, rate), key)
    chart.scatter("this run", [max_batch], [at], color=2)
    if key != "throughput":
        chart.legend = "none"
    return chart


def _told(policy: str, rate: float, slots: int) -> str:
    """Say how one run went."""
    result = _run(policy, slots, rate)
    figures = {key: _value(result, key) or 0.0 for key in _KEYS}
    return (
        f"{policy.capitalize()} batching, {rate:g} requests/s, {slots} slots "
        f"({figures['running']:.1f} in use on average): {figures['throughput']:.0f} tokens/s, "
        f"mean TTFT {figures['ttft']:,.0f} ms, mean TPOT {figures['tpot']:.1f} ms, "
        f"P99 ITL {figures['itl']:.1f} ms."
    )
