"""The live figure of the chapter on naive serving: who waits when requests go one by one."""

from __future__ import annotations

import functools
import math
from functools import cache
from itertools import pairwise

from .. import policies, svg, workload
from ..engine import simulate
from ..errors import InputError
from ..evidence import interval, mean_wait_s
from ..request import NS_PER_S, Request

_MEAN = 175  # output tokens
_RUNS = 8
_N = 250
_WARM = 50  # left out of each run: it begins with an empty queue
_RATES = tuple(i / 100 for i in range(2, 31))


def naive_load(
    rate: float = 0.2, spread: float = 0.5, ghost: dict[str, float] | None = None
) -> svg.Figure:
    """Draw the mean wait of naive serving over the arrival rate, by theory and by eight runs.

    Nine requests in ten have short outputs and one in ten a long one; the mean stays at 175.

    Parameters
    ----------
    rate : float
        Mean arrivals per second (Poisson).
    spread : float
        Coefficient of variation of the output lengths, from 0 to 2.5.
    ghost : dict, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    if not 0 <= spread <= 2.5:
        raise InputError(f"naive_load: spread is from 0 to 2.5, not {spread!r}")
    waits = _waits(rate, spread)
    means = [math.fsum(w[_WARM:]) / (_N - _WARM) for w in waits]
    mean, half = interval(means, 95.0)
    full = 1 / _service_s(spread)

    chart = svg.Chart(
        svg.Axis("Arrival rate (requests/s)", domain=(0, 0.31)),
        svg.Axis("Mean wait (s), logarithmic", "log", domain=(0.05, 500)),
        title="Mean wait for the server",
        height=210,
        legend="top",
    )
    curve = [_theory(r, spread) for r in _RATES]
    chart.line(f"theory, spread {spread:g}", _RATES, curve, color=1)
    if ghost and ghost["spread"] != spread:
        curve = [_theory(r, ghost["spread"]) for r in _RATES]
        chart.line(f"theory, spread {ghost['spread']:g}", _RATES, curve, ghost=True)
    low, high = max(mean - half, 0.05), mean + half
    chart.line("", [rate, rate], [low, high], color=2)
    chart.scatter("each of eight runs", [rate] * _RUNS, means, color=3)
    chart.scatter("their mean, 95 % interval", [rate], [mean], color=2)
    chart.vline(full, f"saturation, {full:.2f}")

    one = svg.Chart(
        "Request",
        svg.Axis("Its wait (s)"),
        title="The first of the runs, request by request",
        height=140,
        legend="none",
    )
    one.step("wait", range(_N), waits[0], fill=True)
    if ghost:
        old = _waits(ghost["rate"], ghost["spread"])[0]
        one.step("default", range(_N), old, ghost=True)

    rows: list[list[svg.Cell]] = [
        [f"run {i}", m, max(w)] for i, (m, w) in enumerate(zip(means, waits, strict=True))
    ]
    rows.append(["mean", mean, None])
    rows.append(["theory", _theory(rate, spread), None])
    return svg.figure(
        "naive-load",
        chart,
        one,
        title="Naive serving: mean wait over the arrival rate, theory and runs",
        summary=_told(rate, spread, mean, half),
        table=(["run", "mean wait (s)", "longest wait (s)"], rows),
    )


def _lengths(spread: float) -> list[int]:
    """Return ten output lengths, each equally likely: mean 175, one in ten is long."""
    short, long = round(_MEAN * (1 - spread / 3)), round(_MEAN * (1 + 3 * spread))
    return [short] * 9 + [long]


@functools.lru_cache(maxsize=64)
def _waits(rate: float, spread: float) -> list[list[float]]:
    """Return the wait of each request, in seconds, in eight runs.

    By Lindley's recursion, from services that the simulator has timed. For a server that takes
    one at a time it gives what `simulate` gives, to the nanosecond, and makes a move quick.
    """
    runs, services = [], [_alone_ns(length) for length in _lengths(spread)]
    for seed in range(_RUNS):
        wait, waits = 0, [0.0]
        for before, after in pairwise(_asked(rate, seed)):
            gap = after.arrival_ns - before.arrival_ns
            wait = max(0, wait + services[before.output_len - 1] - gap)
            waits.append(wait / NS_PER_S)
        runs.append(waits)
    return runs


@functools.lru_cache(maxsize=16 * _RUNS)
def _asked(rate: float, seed: int) -> list[Request]:
    """Return the requests of a run. For their output it says only which of the ten lengths."""
    return workload.poisson(_N, rate, 512, list(range(1, 11)), seed)


@cache
def _alone_ns(output_len: int) -> int:
    """Return how long it takes to serve one request."""
    return simulate([Request(0, 0, 512, output_len)], policies.Naive()).end_ns


def _services_s(spread: float) -> list[float]:
    """Return how long each of the ten lengths takes, in s."""
    return [_alone_ns(length) / NS_PER_S for length in _lengths(spread)]


def _service_s(spread: float) -> float:
    """Return the mean of the service time, in s."""
    services = _services_s(spread)
    return sum(services) / len(services)


def _theory(rate: float, spread: float) -> float | None:
    """Return the mean wait of an M/G/1 queue, in s; None if the queue has no mean."""
    return mean_wait_s(rate, _services_s(spread)) if rate * _service_s(spread) < 1 else None


def _told(rate: float, spread: float, mean: float, half: float) -> str:
    """Say how long the wait is, by theory and in the runs."""
    theory, load = _theory(rate, spread), rate * _service_s(spread)
    short, *_, long = _lengths(spread)
    lengths = f"outputs of {short} and, one in ten, {long} tokens" if spread else "175 tokens out"
    measured = f"in eight runs of {_N} requests it is {mean:.2f} ± {half:.2f} s"
    if theory is None:
        said = f"more work comes than can be done, so theory has no mean wait; {measured}"
        said += " and would grow with longer runs"
    else:
        said = f"theory says a mean wait of {theory:.2f} s, {measured}"
    return (
        f"{rate:g} requests/s, {lengths}: the server is asked for {load:.2f} of its time; {said}."
    )
