"""The live figure of the chapter on requests: who arrives when."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise

from .. import policies, svg, workload
from ..engine import simulate
from ..errors import InputError
from ..lives import lives
from ..metrics import Record, Result
from ..request import NS_PER_MS, NS_PER_S
from ..workload import Lengths

_N = 32
_PLACES = 8
_SEED = 15
_LENGTHS: dict[str, tuple[Lengths, Lengths]] = {
    "conversation": ("azure_conv", "azure_conv"),
    "code": ("azure_code", "azure_code"),
    # The mean lengths of the conversation table, without and with some spread.
    "fixed": (1150, 211),
    "uniform": ((100, 2200), (22, 400)),
}


def arrivals(rate: float = 1.0, cv: float = 2.5, lengths: str = "conversation") -> svg.Figure:
    """Draw the same requests with gaps of more or less spread, and who waits because of it.

    The lengths do not depend on `rate` and `cv`, all requests come in the same span of time,
    and the policy stays the same: continuous batching with 8 places.

    Parameters
    ----------
    rate : float
        Mean arrivals per second.
    cv : float
        Coefficient of variation of the gaps: 0 is a metronome, 1 a Poisson process.
    lengths : {"conversation", "code", "fixed", "uniform"}
        Where prompt and output lengths come from.

    Raises
    ------
    InputError
        If a number is out of range or the lengths are not known.
    """
    if lengths not in _LENGTHS:
        known = ", ".join(_LENGTHS)
        raise InputError(f"arrivals: no lengths {lengths!r}; use one of {known}")
    even = _run(rate, 0, lengths)
    result = _run(rate, cv, lengths) if cv else even
    timeline = svg.Timeline(unit="s", title="Who waits, who runs", width=680)
    lived, records = lives(result, NS_PER_S), list(result.records)
    for r in records:
        timeline.row(f"r{r.request.id}", lived[r.request.id], arrival=r.request.arrival_s)
    chart = svg.Chart("", "requests in the system", height=120, legend="top")
    chart.hline(_PLACES, f"{_PLACES} places: above this line somebody waits")
    chart.step(f"gaps with cv {cv:g}", *_in_system(result))
    if cv:
        chart.step("the same requests, evenly spaced", *_in_system(even), ghost=True)
    (p50, p99), (even50, even99) = (_ttft(r) for r in (result, even))
    told = (
        f"{_N} requests, {rate:g} per second on average, {_PLACES} places; "
        f"TTFT in ms: with gaps of cv {cv:g}, P50 {p50:,.0f} and P99 {p99:,.0f}"
    )
    if cv:
        told += f"; evenly spaced, P50 {even50:,.0f} and P99 {even99:,.0f}"
    return svg.figure(
        "arrivals",
        chart,
        timeline,
        title="Arrivals, waiting and service of each request",
        summary=f"{told}.",
        table=_table(records, result, even),
        share_x=True,
    )


@functools.lru_cache(maxsize=64)
def _run(rate: float, cv: float, lengths: str) -> Result:
    """Serve the requests; their arrivals span the same time whatever `cv` is."""
    prompt, output = _LENGTHS[lengths]
    n, seed = _N, _SEED
    asked = workload.poisson(n=n, rate=rate, prompt=prompt, output=output, seed=seed)
    gaps = [1.0] * (n - 1)
    if cv:
        drawn = workload.gamma(n=n, cv=cv, prompt=1, output=1, seed=seed)
        sizes = sorted(b.arrival_ns - a.arrival_ns for a, b in pairwise(drawn))
        # The k-th longest gap keeps its place whatever `cv` is, so that a slider moves smoothly.
        rng = random.Random(seed)
        dice = [rng.random() for _ in gaps]
        for i, size in zip(sorted(range(n - 1), key=dice.__getitem__), sizes, strict=True):
            gaps[i] = size
    unit = (n - 1) / (rate * math.fsum(gaps))
    times = [round(math.fsum(gaps[:i]) * unit * NS_PER_S) for i in range(n)]
    requests = [replace(r, arrival_ns=t) for r, t in zip(asked, times, strict=True)]
    return simulate(requests, policies.Continuous(max_running=_PLACES))


def _in_system(result: Result) -> tuple[list[float], list[int]]:
    """Return when the number of requests waiting or running changes, and to what."""
    changes = Counter(result.records.column("arrival_ns"))
    changes.subtract(result.records.column("last_token_ns"))
    times = sorted(changes)
    return [t / NS_PER_S for t in times], list(accumulate(changes[t] for t in times))


def _ttft(result: Result) -> tuple[float, float]:
    """Return P50 and P99 of TTFT in milliseconds."""
    ttft = result.ttft_ms
    return ttft.percentile(50) or 0.0, ttft.percentile(99) or 0.0


def _table(
    records: list[Record], result: Result, even: Result
) -> tuple[list[str], list[list[svg.Cell]]]:
    """Return one row per request and the percentiles of both runs."""
    header = ["request", "arrival (s)", "prompt (tokens)", "output (tokens)", "TTFT (ms)"]
    rows: list[list[svg.Cell]] = []
    for r in records:
        q = r.request
        lengths = [q.prompt_len, q.output_len]
        rows.append([f"r{q.id}", q.arrival_s, *lengths, (r.ttft_ns or 0) / NS_PER_MS])
    for name, run in (("", result), (" if evenly spaced", even)):
        for level, value in zip(("P50", "P99"), _ttft(run), strict=True):
            rows.append([f"{level}{name}", None, None, None, value])
    return header, rows
