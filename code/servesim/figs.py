"""The live figures: each a function of plain numbers that runs the simulator and draws.

Standard library only, because the same functions run in the browser. A function depends on its
arguments alone and returns a `svg.Figure`: a picture, one sentence and the table of its numbers.
Helpers of one figure carry its name.
"""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Literal

from . import cost, policies, svg, systems, trace, workload
from .engine import simulate
from .errors import InputError
from .kv import KVCache, block_map
from .metrics import Record, Result
from .plan import Plan, View
from .request import NS_PER_MS, NS_PER_S, NS_PER_US, Request
from .workload import Lengths

# ---------------------------------------------------------------- requests: who arrives when

_ARRIVALS_N = 32
_ARRIVALS_PLACES = 8
_ARRIVALS_SEED = 15
_ARRIVALS_LENGTHS: dict[str, tuple[Lengths, Lengths]] = {
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
    if lengths not in _ARRIVALS_LENGTHS:
        known = ", ".join(_ARRIVALS_LENGTHS)
        raise InputError(f"arrivals: no lengths {lengths!r}; use one of {known}")
    even = _arrivals_run(rate, 0, lengths)
    result = _arrivals_run(rate, cv, lengths) if cv else even
    timeline = svg.Timeline(unit="s", title="Who waits, who runs", width=680)
    lives = _arrivals_lives(result)
    for r in result.records:
        timeline.row(f"r{r.request.id}", lives[r.request.id], arrival=r.request.arrival_s)
    chart = svg.Chart("", "requests in the system", height=120, legend="top")
    chart.hline(_ARRIVALS_PLACES, f"{_ARRIVALS_PLACES} places: above this line somebody waits")
    chart.step(f"gaps with cv {cv:g}", *_arrivals_in_system(result))
    if cv:
        chart.step("the same requests, evenly spaced", *_arrivals_in_system(even), ghost=True)
    (p50, p99), (even50, even99) = (_arrivals_ttft(r) for r in (result, even))
    told = (
        f"{_ARRIVALS_N} requests, {rate:g} per second on average, {_ARRIVALS_PLACES} places; "
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
        table=_arrivals_table(result, even),
        share_x=True,
    )


def _arrivals_run(rate: float, cv: float, lengths: str) -> Result:
    """Serve the requests; their arrivals span the same time whatever `cv` is."""
    prompt, output = _ARRIVALS_LENGTHS[lengths]
    n, seed = _ARRIVALS_N, _ARRIVALS_SEED
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
    return simulate(requests, policies.Continuous(max_running=_ARRIVALS_PLACES))


def _arrivals_lives(result: Result) -> dict[int, list[svg.Segment]]:
    """Return what each request was doing when, for a timeline in seconds."""
    lives: dict[int, list[svg.Segment]] = {r.request.id: [] for r in result.records}
    for s in trace.segments(result):
        life = svg.Segment(s.start_ns / NS_PER_S, s.end_ns / NS_PER_S, s.kind)
        lives[s.id].append(life)
    return lives


def _arrivals_in_system(result: Result) -> tuple[list[float], list[int]]:
    """Return when the number of requests waiting or running changes, and to what."""
    changes: Counter[int] = Counter()
    for r in result.records:
        changes[r.request.arrival_ns] += 1
        changes[r.last_token_ns or 0] -= 1
    times = sorted(changes)
    return [t / NS_PER_S for t in times], list(accumulate(changes[t] for t in times))


def _arrivals_ttft(result: Result) -> tuple[float, float]:
    """Return P50 and P99 of TTFT in milliseconds."""
    ttft = result.ttft_ms
    return ttft.percentile(50) or 0.0, ttft.percentile(99) or 0.0


def _arrivals_table(
    result: Result, even: Result
) -> tuple[list[str], list[list[str | int | float | None]]]:
    """Return one row per request and the percentiles of both runs."""
    header = ["request", "arrival (s)", "prompt (tokens)", "output (tokens)", "TTFT (ms)"]
    rows: list[list[str | int | float | None]] = []
    for r in result.records:
        q = r.request
        lengths = [q.prompt_len, q.output_len]
        rows.append([f"r{q.id}", q.arrival_s, *lengths, (r.ttft_ns or 0) / NS_PER_MS])
    for name, run in (("", result), (" if evenly spaced", even)):
        for level, value in zip(("P50", "P99"), _arrivals_ttft(run), strict=True):
            rows.append([f"{level}{name}", None, None, None, value])
    return header, rows


# ------------------------------------------------- static batching: who sits idle until the end

_STATIC_WASTE_N = 16
_STATIC_WASTE_SEED = 10  # chosen: these 16 lie close to the formulas, others scatter more
_STATIC_WASTE_MEAN = 175
_STATIC_WASTE_SIZES = range(1, 17)


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
    if not 0 <= spread < _STATIC_WASTE_MEAN:
        top = _STATIC_WASTE_MEAN - 1
        raise InputError(f"static_waste: spread is from 0 to {top} tokens, not {spread!r}")
    result = _static_waste_run(batch_size, spread, rate)
    groups = _static_waste_groups(result)
    slots = sum(len(g) * max(r.output_tokens for r in g) for _, g in groups)
    share = 100 * (slots - result.output_tokens) / slots
    formula = _static_waste_formula(batch_size, spread)

    lives = _static_waste_lives(result, groups)
    timeline = svg.Timeline(unit="s", title="Each request, and its slot until the group is done")
    for r in result.records:
        first = (r.first_token_ns or 0) / NS_PER_S
        arrival = r.request.arrival_s
        timeline.row(f"r{r.request.id}", lives[r.request.id], arrival=arrival, first_token=first)

    chart = svg.Chart(
        svg.Axis("Batch size", domain=(0, 17)),
        svg.Axis("Slot-steps wasted (%)", domain=(0, 60)),
        title="Share of slot-steps in which the slot idles",
        height=150,
        legend="top",
    )
    curve = [_static_waste_formula(b, spread) for b in _STATIC_WASTE_SIZES]
    chart.line(f"formula, 175 ± {spread} tokens", _STATIC_WASTE_SIZES, curve)
    chart.scatter("this run", [batch_size], [share], color=2)
    if ghost:
        size, other, pace = int(ghost["batch_size"]), int(ghost["spread"]), ghost["rate"]
        if other != spread:
            curve = [_static_waste_formula(b, other) for b in _STATIC_WASTE_SIZES]
            chart.line(f"formula, 175 ± {other}", _STATIC_WASTE_SIZES, curve, ghost=True)
        end = _static_waste_run(size, other, pace).end_ns / NS_PER_S
        timeline.vline(end, f"default ends, {end:.1f} s")

    filling = _static_waste_mean(fills - r.request.arrival_ns for fills, g in groups for r in g)
    ttft = _static_waste_mean(r.ttft_ns or 0 for r in result.records)
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
        table=_static_waste_table(groups),
    )


def _static_waste_run(batch_size: int, spread: int, rate: float) -> Result:
    """Serve the 16 requests in groups."""
    asked = workload.poisson(_STATIC_WASTE_N, rate, 512, 1, _STATIC_WASTE_SEED)
    rng = random.Random(_STATIC_WASTE_SEED + 1)  # else long gaps would go with long outputs
    outputs = [_STATIC_WASTE_MEAN + round(spread * (2 * rng.random() - 1)) for _ in asked]
    requests = [replace(r, output_len=n) for r, n in zip(asked, outputs, strict=True)]
    return simulate(requests, policies.Static(batch_size))


def _static_waste_groups(result: Result) -> list[tuple[int, list[Record]]]:
    """Return the groups that ran, each with the moment at which it was complete, in ns."""
    groups: dict[int, list[Record]] = {}
    for r in result.records:
        groups.setdefault(r.first_scheduled_ns or 0, []).append(r)
    return [(g[-1].request.arrival_ns, g) for g in groups.values()]


def _static_waste_formula(batch_size: int, spread: int) -> float:
    """Return 100 * (1 - mean / expected longest of a group), for uniform whole lengths."""
    low, count = _STATIC_WASTE_MEAN - spread, 2 * spread + 1
    longest = low + math.fsum(1 - (k / count) ** batch_size for k in range(1, count))
    return 100 * (1 - _STATIC_WASTE_MEAN / longest)


def _static_waste_mean(times_ns: Iterable[int]) -> float:
    """Return the mean of 16 times, in seconds."""
    return sum(times_ns) / _STATIC_WASTE_N / NS_PER_S


def _static_waste_lives(
    result: Result, groups: list[tuple[int, list[Record]]]
) -> dict[int, list[svg.Segment]]:
    """Return what each request was doing when, and its slot after it, in seconds."""
    lives: dict[int, list[svg.Segment]] = {r.request.id: [] for r in result.records}
    for s in trace.segments(result):
        if s.kind != "waiting":
            life = svg.Segment(s.start_ns / NS_PER_S, s.end_ns / NS_PER_S, s.kind)
            lives[s.id].append(life)
    for fills, group in groups:
        end = max(r.last_token_ns or 0 for r in group) / NS_PER_S
        for r in group:
            arrives, complete = r.request.arrival_s, fills / NS_PER_S
            start, left = (r.first_scheduled_ns or 0) / NS_PER_S, (r.last_token_ns or 0) / NS_PER_S
            lives[r.request.id][:0] = [
                svg.Segment(arrives, complete, "waiting", "for its group to fill"),
                svg.Segment(complete, start, "waiting", "for the group before to end"),
            ]
            lives[r.request.id].append(svg.Segment(left, end, "idle", "its slot makes nothing"))
    return {rid: [s for s in life if s.start < s.end] for rid, life in lives.items()}


def _static_waste_table(
    groups: list[tuple[int, list[Record]]],
) -> tuple[list[str], list[list[str | int | float | None]]]:
    """Return one row per group."""
    header = [
        *("group", "complete (s)", "starts (s)", "ends (s)", "longest output", "tokens"),
        *("idle slot-steps", "wasted (%)"),
    ]
    rows: list[list[str | int | float | None]] = []
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


# ------------------------------------------- four modes: a published table at other prices

_FOUR_MODES = ("naive", "static", "continuous", "chunked")
_FOUR_MODES_PRICES: dict[str, cost.Cost] = {
    "toy": cost.TOY,
    "toy, static's own": cost.TOY_STATIC,
    "OPT-13B on A100 (DistServe fit)": cost.OPT_13B_A100,
    "OPT-13B on A100 (roofline)": cost.Roofline("opt-13b", "a100"),
    "Llama-3-8B on H100 (roofline)": cost.Roofline("llama-3-8b", "h100"),
}


def four_modes(
    prices: str = "toy",
    kv_blocks: int = 1800,
    rate: float = 40,
    padding: str = "paid",
    seed: int = 7,
) -> svg.Figure:
    """Draw the toy program's four modes under one price list and one memory for all of them.

    Heights are relative to naive serving, so that price lists of different speed can be
    compared; the table has the absolute numbers.

    Parameters
    ----------
    prices : str
        Name of a price list.
    kv_blocks : int
        KV blocks of 16 tokens.
    rate : float
        Mean arrivals per second; 40 with seed 7 is the toy program's workload.
    padding : {"paid", "none"}
        Whether static pays for padded prompts and for members that are done.
    seed : int
        Of the workload.

    Raises
    ------
    InputError
        If a number is out of range, or there is no such price list or padding.
    """
    for value, known in ((prices, [*_FOUR_MODES_PRICES]), (padding, ["paid", "none"])):
        if value not in known:
            raise InputError(f"four_modes: no {value!r}; use one of {'; '.join(known)}")
    requests = workload.poisson(60, rate, [128, 256, 512, 2048, 8192], (50, 300), seed)
    static = policies.Static(16) if padding == "paid" else _FourModesUnpadded(16)
    modes = (policies.Naive(), static, policies.Continuous(), policies.Chunked(chunk=512))
    kv, price = KVCache(kv_blocks), _FOUR_MODES_PRICES[prices]
    ours = [_four_modes_row(simulate(requests, mode, cost=price, kv=kv)) for mode in modes]
    table = _four_modes_published()

    panels = []
    for i, (name, good) in enumerate(
        (("Throughput", "high"), ("Mean TTFT", "low"), ("P99 ITL", "low"))
    ):
        x = svg.Axis(categories=_FOUR_MODES)
        kind: svg.ScaleKind = "log" if i else "linear"
        y = svg.Axis(f"times naive's, {kind} scale ({good} is good)", kind)
        legend: Literal["top", "none"] = "none" if i else "top"
        chart = svg.Chart(x, y, title=name, height=130, legend=legend)
        chart.bars("this run", [float(f"{row[i] / ours[0][i]:.3g}") for row in ours])
        chart.bars("published", [row[i] / table[0][i] for row in table], ghost=True)
        panels.append(chart)

    header = ["mode", "tokens/s", "TTFT (ms)", "P99 ITL (ms)"]
    rows: list[list[str | int | float | None]] = [
        [mode, *row, *old] for mode, row, old in zip(_FOUR_MODES, ours, table, strict=True)
    ]
    return svg.figure(
        "four-modes",
        *panels,
        title="Four modes at one price list, beside the published table",
        summary=f"{prices}, {kv_blocks:,} blocks, {rate:g} requests/s: {_four_modes_told(ours)}",
        table=([*header, *(f"published {name}" for name in header[1:])], rows),
    )


class _FourModesUnpadded(policies.Static):
    """Static batching that pays for real prompts and for unfinished members only."""

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        plan.padded_prompt = plan.idle_slots = 0
        return plan


def _four_modes_row(result: Result) -> tuple[float, float, float]:
    """Return tokens/s, mean TTFT and P99 ITL in milliseconds."""
    gap = result.itl_ms.percentile(99)
    return result.throughput_tok_s or 0.0, result.ttft_ms.mean or 0.0, gap or 0.0


@cache
def _four_modes_published() -> list[tuple[float, float, float]]:
    """Return the published table, computed by system A's own rules."""
    modes = systems.toy_report()["modes"].values()
    return [(m["throughput_tok_s"], m["mean_ttft_ms"], m["p99_itl_ms"]) for m in modes]


def _four_modes_told(rows: list[tuple[float, float, float]]) -> str:
    """Say in one sentence who wins, at which metric."""

    def ms(value: float) -> str:
        return f"{value / 1000:,.3g} s" if value >= 1000 else f"{value:.3g} ms"

    naive, static, continuous, chunked = rows
    return (
        f"continuous makes {continuous[0]:,.0f} tokens/s, "
        f"{continuous[0] / static[0]:.2f} times static's {static[0]:,.0f} and "
        f"{continuous[0] / naive[0]:.2f} times naive's {naive[0]:,.0f}; mean TTFT is "
        f"{ms(static[1])} with static, {ms(continuous[1])} with continuous and "
        f"{ms(chunked[1])} with chunks; P99 ITL is {ms(static[2])}, {ms(continuous[2])} and "
        f"{ms(chunked[2])}."
    )


# ------------------------------------- continuous batching: slots against throughput and latency

_BATCHING_N = 100
_BATCHING_SEED = 21
_BATCHING_PROMPT = 512
_BATCHING_OUTPUTS = (16, 32, 64, 160)
_BATCHING_SLOTS = (1, 2, 4, 8, 16, 32, 64)


def batching(
    rate: float = 4.0,
    max_batch: int = 16,
    policy: str = "continuous",
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw throughput and latency over the number of slots, and where one choice lies.

    100 requests with prompts of 512 tokens and outputs of 16, 32, 64 or 160, at the default
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
    slots = sorted({*_BATCHING_SLOTS, max_batch})
    before = None
    if ghost:
        before = str(ghost.get("policy", policy)), float(ghost["rate"]), int(ghost["max_batch"])
    panels = [
        _batching_chart(title, key, slots, (policy, rate, max_batch), before)
        for title, key in (
            ("Throughput (tokens/s)", "throughput"),
            ("Mean TTFT (ms)", "ttft"),
            ("Mean TPOT (ms)", "tpot"),
            ("P99 ITL (ms)", "itl"),
        )
    ]
    asked = rate * sum(_BATCHING_OUTPUTS) / len(_BATCHING_OUTPUTS)
    panels[0].hline(asked, f"asked for: {svg.fmt(asked)}")
    panels[0].vline(max_batch, f"{max_batch} slots")
    for panel in panels[1:]:
        panel.vline(max_batch)
    summary = _batching_told(policy, rate, max_batch)
    if before:
        summary += f" Default: {_batching_told(*before)}"
        if before[2] != max_batch:
            panels[0].vline(before[2], f"default: {before[2]}")
    header = ["slots", "throughput (tokens/s)", "mean TTFT (ms)", "mean TPOT (ms)"]
    header += ["P99 ITL (ms)", "slots in use (mean)"]
    rows: list[list[str | int | float | None]] = []
    for n in slots:
        run = _batching_run(policy, n, rate)
        rows.append([str(n), *(_batching_value(run, key) for key in _BATCHING_KEYS)])
    return svg.figure(
        "batching",
        *panels,
        title="Throughput and latency over the number of slots",
        summary=summary,
        table=(header, rows),
        share_x=True,
    )


_BATCHING_KEYS = ("throughput", "ttft", "tpot", "itl", "running")


@functools.lru_cache(maxsize=128)
def _batching_run(policy: str, slots: int, rate: float) -> Result:
    """Serve the 100 requests; the figure asks for the same runs again and again."""
    requests = workload.poisson(
        _BATCHING_N, rate, _BATCHING_PROMPT, list(_BATCHING_OUTPUTS), _BATCHING_SEED
    )
    chosen = policies.Static(slots) if policy == "static" else policies.Continuous(slots)
    return simulate(requests, chosen)


def _batching_value(result: Result, key: str) -> float | None:
    """Return one figure of a run, in the unit of its panel."""
    if key == "throughput":
        return result.throughput_tok_s
    if key == "ttft":
        return result.ttft_ms.mean
    if key == "tpot":
        return result.tpot_ms.mean
    return result.itl_ms.percentile(99) if key == "itl" else result.mean_running


def _batching_chart(
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
        old = {n: _batching_value(_batching_run(was, n, pace), key) for n in {*slots, place}}
        if (was, pace) != (policy, rate):
            name = f"default: {was}, {pace:g} requests/s"
            chart.line(name, slots, [old[n] for n in slots], ghost=True)
        chart.scatter("", [place], [old[place]], ghost=True)
    curve = [_batching_value(_batching_run(policy, n, rate), key) for n in slots]
    chart.line(f"{policy}, {rate:g} requests/s", slots, curve, color=1)
    at = _batching_value(_batching_run(policy, max_batch, rate), key)
    chart.scatter("this run", [max_batch], [at], color=2)
    if key != "throughput":
        chart.legend = "none"
    return chart


def _batching_told(policy: str, rate: float, slots: int) -> str:
    """Say how one run went."""
    result = _batching_run(policy, slots, rate)
    figures = {key: _batching_value(result, key) or 0.0 for key in _BATCHING_KEYS}
    return (
        f"{policy.capitalize()} batching, {rate:g} requests/s, {slots} slots "
        f"({figures['running']:.1f} in use on average): {figures['throughput']:.0f} tokens/s, "
        f"mean TTFT {figures['ttft']:,.0f} ms, mean TPOT {figures['tpot']:.1f} ms, "
        f"P99 ITL {figures['itl']:.1f} ms."
    )


# ----------------------------------- vllm: a replayed trace, and what would change with its knobs

# The workload of the recorded trace "small021": arrival in us, prompt and output tokens.
_VLLM_STEPS_REQUESTS = (
    *((1224, 115, 9), (1224, 47, 18), (2943, 66, 13), (3472, 100, 17), (3472, 89, 20)),
    *((5815, 5, 5), (6078, 11, 3), (7358, 70, 19), (7358, 68, 19)),
)
_VLLM_STEPS_SEQS = 6
_VLLM_STEPS_BLOCK = 16


def vllm_steps(
    step: int = 25,
    max_num_batched_tokens: int = 64,
    num_gpu_blocks: int = 20,
    watermark: float = 0.05,
    release: str = "0.33.0",
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw one step, and the run around it, of nine requests under vLLM's rules.

    With the default settings this is the recorded trace "small021" of vLLM 0.33.0, and with
    release 0.11.2 that of vLLM 0.11.2, step for step. Its clock is made up: 0.2 ms per step, 0.04
    ms per prefill token, 0.5 ms per decode.

    Parameters
    ----------
    step : int
        The step to look at; the last one if the run is shorter.
    max_num_batched_tokens : int
        Token budget.
    num_gpu_blocks : int
        KV blocks of 16 tokens, the null block included.
    watermark : float
        Share of the blocks that an admission leaves free (0.33.0 only).
    release : {"0.33.0", "0.11.2"}
    ghost : dict, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is out of range or the release is not known.
    """
    result = _vllm_steps_run(max_num_batched_tokens, num_gpu_blocks, watermark, release)
    if step < 0:
        raise InputError(f"vllm_steps: step must be 0 or more, not {step!r}")
    record = result.step_records[min(step, len(result.step_records) - 1)]

    parts = [
        svg.Part(f"r{s.id}", s.tokens, "decode" if s.decode else "prefill")
        for s in record.scheduled
    ]
    title = f"Step {record.index}: its token budget"
    bar = svg.BudgetBar(parts, max_num_batched_tokens, title=title)

    timeline = svg.Timeline(unit="ms", title="Who runs, who waits, who is thrown out")
    lives = _vllm_steps_lives(result)
    for r in result.records:
        first = None if r.first_token_ns is None else r.first_token_ns / NS_PER_MS
        row = f"r{r.request.id}", lives[r.request.id]
        timeline.row(*row, arrival=r.request.arrival_ms, first_token=first)
    middle = (record.start_ns + record.end_ns) / 2 / NS_PER_MS
    timeline.vline(middle, f"step {record.index}")

    memory = svg.Chart("", "KV blocks free", height=105, legend="top")
    memory.step("after each plan", *_vllm_steps_series(result, "free"), fill=True)
    if ghost:
        keys = ("max_num_batched_tokens", "num_gpu_blocks", "watermark", "release")
        before = _vllm_steps_run(*(ghost[key] for key in keys))
        memory.step("with the default settings", *_vllm_steps_series(before, "free"), ghost=True)
    memory.vline(middle)
    people = svg.Chart("Time (ms)", "Requests", height=105, legend="top")
    people.step("running", *_vllm_steps_series(result, "running"), color=1)
    people.step("waiting", *_vllm_steps_series(result, "waiting"), color=2)
    people.vline(middle)
    return svg.figure(
        "vllm-steps",
        bar,
        timeline,
        memory,
        people,
        title="Nine requests under vLLM's rules, step by step",
        summary=_vllm_steps_told(result, record),
        table=_vllm_steps_table(result),
        share_x=True,
    )


@functools.lru_cache(maxsize=64)
def _vllm_steps_run(budget: int, blocks: int, watermark: float, release: str) -> Result:
    """Run the nine requests; looking at another step runs nothing again."""
    requests = [
        Request(i, arrival * NS_PER_US, prompt, output)
        for i, (arrival, prompt, output) in enumerate(_VLLM_STEPS_REQUESTS)
    ]
    policy = policies.VLLM(budget, _VLLM_STEPS_SEQS, watermark=watermark, release=release)
    memory = KVCache(blocks, _VLLM_STEPS_BLOCK, null_block=True)
    return simulate(requests, policy, cost=cost.TOY, kv=memory, record_steps=True)


def _vllm_steps_lives(result: Result) -> dict[int, list[svg.Segment]]:
    """Return what each request was doing when, in milliseconds."""
    lives: dict[int, list[svg.Segment]] = {r.request.id: [] for r in result.records}
    for s in trace.segments(result):
        kind, note = (s.kind, "") if s.kind != "stalled" else ("idle", "no token budget left")
        life = svg.Segment(s.start_ns / NS_PER_MS, s.end_ns / NS_PER_MS, kind, note)
        lives[s.id].append(life)
    return lives


def _vllm_steps_series(result: Result, what: str) -> tuple[list[float], list[int]]:
    """Return the starts of the steps and a number after each plan, with the end of the run."""
    count: dict[str, Callable[[trace.StepRecord], int]] = {
        "free": lambda s: s.free_blocks[1],
        "running": lambda s: len(s.running),
        "waiting": lambda s: len(s.waiting),
    }
    values = [count[what](s) for s in result.step_records]
    ends = {"free": result.step_records[-1].free_blocks[2]}
    times = [*(s.start_ns for s in result.step_records), result.end_ns]
    return [t / NS_PER_MS for t in times], [*values, ends.get(what, 0)]


def _vllm_steps_told(result: Result, record: trace.StepRecord) -> str:
    """Say what the step did and how the run went."""
    given = ", ".join(f"r{s.id} {s.tokens}" for s in record.scheduled) or "nobody"
    parts = [f"Step {record.index} of 0 to {len(result.step_records) - 1} schedules {given}"]
    if record.preempted:
        gone = " and ".join(f"r{rid}" for rid in record.preempted)
        parts.append(f"{gone} preempted, so nobody is admitted")
    parts += list(record.reasons.values())[:1]
    before, after, end = record.free_blocks
    parts.append(f"free blocks {before} before the plan, {after} after it, {end} at the end")
    once = sum(r.request.prompt_len + r.request.output_len - 1 for r in result.records)
    again = sum(x.tokens for s in result.step_records for x in s.scheduled) - once
    ttft, gap = result.ttft_ms.mean or 0.0, result.itl_ms.max or 0.0
    times = "1 preemption" if result.preemptions == 1 else f"{result.preemptions} preemptions"
    return (
        f"{'; '.join(parts)}. Whole run: {times}, {again} tokens computed again, mean "
        f"TTFT {ttft:.1f} ms, longest gap {gap:.1f} ms, end at {result.end_ns / NS_PER_MS:.1f} ms."
    )


def _vllm_steps_table(
    result: Result,
) -> tuple[list[str], list[list[str | int | float | None]]]:
    """Return one row per step."""

    def names(ids: Iterable[int]) -> str:
        return " ".join(f"r{rid}" for rid in ids) or "-"

    header = ["step", "start (ms)", "scheduled", "preempted", "finished"]
    header += ["free before", "free after", "free at end", "running", "waiting"]
    rows: list[list[str | int | float | None]] = []
    for s in result.step_records:
        given = " ".join(f"r{x.id}:{x.tokens}" for x in s.scheduled) or "-"
        lists = [given, names(s.preempted), names(s.finished)]
        ends = [names(s.running), names(s.waiting)]
        rows.append([str(s.index), s.start_ns / NS_PER_MS, *lists, *s.free_blocks, *ends])
    return header, rows


# ------------------------------------------ kv blocks: who holds which block, and who is thrown out

_KV_BLOCKS_N = 12
_KV_BLOCKS_SEED = 4
_KV_BLOCKS_MAX_LEN = 256
_KV_BLOCKS_KINDS: dict[str, tuple[policies.Policy, bool]] = {
    "reserve the maximum": (policies.Orca("max", _KV_BLOCKS_MAX_LEN), True),
    "reserve a power of two": (policies.Orca("pow2", _KV_BLOCKS_MAX_LEN), True),
    "reserve exactly": (policies.Orca("oracle"), True),
    "reserve exactly, paged": (policies.Orca("oracle"), False),
    "on demand, paged": (policies.VLLM(), False),
}


def kv_blocks(
    memory: int = 640,
    block_size: int = 16,
    policy: str = "on demand, paged",
    moment: int = 40,
) -> svg.Figure:
    """Draw the KV cache block by block at one moment of a run, and how full it is over time.

    Twelve requests of 16 to 96 prompt tokens and 16 to 128 output tokens arrive within a second or
    so; prices are the default.

    Parameters
    ----------
    memory : int
        Tokens that the cache holds.
    block_size : int
        Tokens in a block.
    policy : str
        How memory is given out; see the chapter.
    moment : int
        Which step to show, in percent of the run.

    Raises
    ------
    InputError
        If a number is out of range or the policy is not known.
    """
    if policy not in _KV_BLOCKS_KINDS:
        known = "; ".join(_KV_BLOCKS_KINDS)
        raise InputError(f"kv_blocks: no {policy!r}; use one of {known}")
    if not 0 <= moment <= 100:
        raise InputError(f"kv_blocks: moment is a share of the run from 0 to 100, not {moment!r}")
    result = _kv_blocks_run(memory // block_size, block_size, policy)
    if not result.finished:
        return _kv_blocks_nobody_fits(memory, block_size, policy)
    steps = result.step_records
    shots = block_map(steps, result.kv)
    at = (len(steps) - 1) * moment // 100
    step, shot = steps[at], shots[at]

    cells = svg.BlockMap(
        [None if o is None else f"r{o}" for o in shot.owners],
        used=[n / block_size for n in shot.tokens],
        slots={f"r{r.request.id}": r.request.id + 1 for r in result.records},
        columns=16 if len(shot.owners) <= 128 else 32,  # chunks lie straight in such rows
        title=f"Step {step.index}: {len(step.running)} in the batch, {len(step.waiting)} waiting",
    )
    chart = _kv_blocks_chart(result, [sum(s.tokens) for s in shots])
    chart.vline(step.start_ns / NS_PER_S, "map above")
    return svg.figure(
        "kv-blocks",
        cells,
        chart,
        title="KV blocks by owner at one moment, and memory over time",
        summary=_kv_blocks_told(result, policy, sum(shot.tokens), step),
        table=_kv_blocks_table(result),
    )


@functools.lru_cache(maxsize=32)
def _kv_blocks_run(blocks: int, block_size: int, policy: str) -> Result:
    """Serve the twelve requests; those that can never fit are turned away."""
    requests = workload.poisson(_KV_BLOCKS_N, 12.0, (16, 96), (16, 128), _KV_BLOCKS_SEED)
    chosen, contiguous = _KV_BLOCKS_KINDS[policy]
    kv = KVCache(blocks, block_size, contiguous=contiguous)
    return simulate(requests, chosen, kv=kv, never_fits="reject", record_steps=True)


def _kv_blocks_chart(result: Result, tokens: Sequence[int]) -> svg.Chart:
    """Return the memory over time: what is held, what is filled, and who was thrown out when."""
    steps, kv = result.step_records, result.kv
    limit = kv.usable * kv.block_size
    times = [s.start_ns / NS_PER_S for s in steps] + [result.end_ns / NS_PER_S]
    held = [(kv.usable - s.free_blocks[1]) * kv.block_size for s in steps]
    chart = svg.Chart(
        svg.Axis("Time (s)"),
        svg.Axis("Tokens", domain=(0, limit * 1.1)),
        title="Memory over time",
        height=130,
        legend="top",
    )
    chart.step("held", times, [*held, 0])
    chart.step("filled with tokens", times, [*tokens, 0])
    chart.hline(limit, f"all: {limit}")
    thrown = [s for s in steps if s.preempted]
    if thrown:
        chart.scatter("preemption", [s.start_ns / NS_PER_S for s in thrown], [limit] * len(thrown))
    return chart


def _kv_blocks_told(result: Result, policy: str, filled: int, step: trace.StepRecord) -> str:
    """Say what the run and the moment show."""
    kv, split = result.kv, result.kv_split()
    limit = kv.usable * kv.block_size
    held = limit - step.free_blocks[1] * kv.block_size
    away = f", {len(result.rejected)} turned away" if result.rejected else ""
    return (
        f"{policy.capitalize()}, {kv.usable} blocks of {kv.block_size} tokens: "
        f"{result.mean_running:.1f} requests in the batch on average, "
        f"{result.preemptions} preemptions{away}, all done after {result.makespan_s:.2f} s. "
        f"Averaged over the run {split.tokens:.0f} % of the memory holds tokens and "
        f"{100 - split.tokens - split.free:.0f} % is held without; in step {step.index} it is "
        f"{100 * filled / limit:.0f} % and {100 * (held - filled) / limit:.0f} %."
    )


def _kv_blocks_table(result: Result) -> tuple[list[str], list[list[str | int | float | None]]]:
    """Return one row per request."""
    header = ["request", "prompt", "output", "arrives (s)", "first token (s)", "last token (s)"]
    header += ["preempted", "most blocks held"]
    most: Counter[int] = Counter()
    for step in result.step_records:
        for rid, blocks in step.blocks.items():
            most[rid] = max(most[rid], blocks)
    rows: list[list[str | int | float | None]] = []
    for r in result.records:
        times = (r.request.arrival_ns, r.first_token_ns, r.last_token_ns)
        rows.append(
            [
                f"r{r.request.id}",
                r.request.prompt_len,
                r.request.output_len,
                *(None if t is None else round(t / NS_PER_S, 3) for t in times),
                r.preemptions,
                most[r.request.id],
            ]
        )
    return header, rows


def _kv_blocks_nobody_fits(memory: int, block_size: int, policy: str) -> svg.Figure:
    """Return the empty map of a cache in which no request can ever fit."""
    blocks = memory // block_size
    return svg.figure(
        "kv-blocks",
        svg.BlockMap([None] * blocks, title="Every request was turned away"),
        title="KV blocks by owner at one moment, and memory over time",
        summary=f"{policy.capitalize()}, {blocks} blocks of {block_size} tokens: no request can "
        "ever fit, so all of them are turned away.",
    )


# ------------------------------------------------ step-cost: what a decode step spends its time on

_ROOFLINE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_ROOFLINE_GPUS = {
    "1 H100": ("h100", 1),
    "8 H100": ("h100", 8),
    "1 A100": ("a100", 1),
    "8 A100": ("a100", 8),
}
_ROOFLINE_GB = 80  # memory of either GPU, by its data sheet


def roofline(
    batch: int = 32,
    context: int = 1024,
    model: str = "llama-3-8b",
    gpus: str = "1 H100",
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw what bounds a decode step: reading the weights, reading the KV cache, or arithmetic.

    Parameters
    ----------
    batch : int
        Sequences that decode in the step.
    context : int
        Tokens of context of each.
    model : {"llama-3-8b", "opt-13b", "llama-2-70b"}
    gpus : {"1 H100", "8 H100", "1 A100", "8 A100"}
    ghost : dict, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is not positive, or the model or the GPUs are not known.
    """
    if gpus not in _ROOFLINE_GPUS:
        raise InputError(f"roofline: no GPUs {gpus!r}; use one of {', '.join(_ROOFLINE_GPUS)}")
    if batch < 1 or context < 1:
        raise InputError(f"roofline: batch and context must be 1 or more, not {batch}, {context}")
    weights, kv, arithmetic = _roofline_ms(batch, context, model, gpus)
    step = max(weights + kv, arithmetic)

    split = svg.Chart(
        svg.Axis(categories=("memory", "arithmetic")),
        "Time in this step (ms)",
        title="What the step waits for: the higher column",
        height=150,
        legend="top",
        stacked=True,
    )
    split.bars("weights", [weights, None])
    split.bars("KV cache", [kv, None], color=3)
    split.bars("arithmetic", [None, arithmetic], color=2)
    split.hline(step, f"the step: {svg.fmt(step)} ms")

    each = svg.Chart(
        svg.Axis("Batch size (sequences)", "log2"),
        svg.Axis("Step time = time per token of each sequence (ms)", "log"),
        title="What one sequence feels",
        height=150,
        legend="top",
    )
    shared = svg.Chart(
        svg.Axis("Batch size (sequences)", "log2"),
        svg.Axis("Step time / batch size (ms per token)", "log"),
        title="What one token costs",
        height=150,
        legend="none",
    )
    rows = [_roofline_row(b, context, model, gpus) for b in _ROOFLINE_BATCHES]
    for chart, column, mark in ((each, 4, step), (shared, 5, step / batch)):
        if ghost:
            before = [
                _roofline_row(b, ghost["context"], ghost["model"], ghost["gpus"])
                for b in _ROOFLINE_BATCHES
            ]
            chart.line("default", _ROOFLINE_BATCHES, [r[column] for r in before], ghost=True)
        name = f"{context} tokens of context each"
        chart.line(name, _ROOFLINE_BATCHES, [r[column] for r in rows], color=1)
        chart.scatter("this step", [batch], [mark], color=2)
    each.hline(weights, "the weights alone")
    ridge = _roofline_ridge(gpus)
    each.vline(ridge, f"ridge, {ridge:.0f}")
    shared.vline(ridge)
    header = ["batch", "weights (ms)", "KV cache (ms)", "arithmetic (ms)"]
    header += ["step (ms)", "per token (ms)"]
    return svg.figure(
        "roofline",
        split,
        each,
        shared,
        title="A decode step by the roofline: weights, KV cache and arithmetic",
        summary=_roofline_told(batch, context, model, gpus),
        table=(header, [[str(b), *r[1:]] for b, r in zip(_ROOFLINE_BATCHES, rows, strict=True)]),
    )


def _roofline_ms(batch: int, context: int, model: str, gpus: str) -> tuple[float, float, float]:
    """Return the time for the weights, for the KV cache and for the arithmetic, in ms."""
    gpu, count = _ROOFLINE_GPUS[gpus]
    price = cost.Roofline(model, gpu, count)
    work = cost.Work(decodes=batch, context_tokens=batch * context)
    weights = price.memory_ns(cost.Work())
    times = weights, price.memory_ns(work) - weights, price.compute_ns(work)
    return times[0] / NS_PER_MS, times[1] / NS_PER_MS, times[2] / NS_PER_MS


def _roofline_row(batch: int, context: int, model: str, gpus: str) -> list[float]:
    """Return batch size, the three times, the step and the step per token, in ms."""
    weights, kv, arithmetic = _roofline_ms(batch, context, model, gpus)
    step = max(weights + kv, arithmetic)
    return [batch, weights, kv, arithmetic, step, step / batch]


def _roofline_ridge(gpus: str) -> float:
    """Return the FLOP per byte at which arithmetic and memory take equally long."""
    gpu = cost.GPUS[_ROOFLINE_GPUS[gpus][0]]
    return gpu.flops / gpu.bandwidth


def _roofline_told(batch: int, context: int, model: str, gpus: str) -> str:
    """Say what the step costs, what bounds it, and whether it fits into memory."""
    weights, kv, arithmetic = _roofline_ms(batch, context, model, gpus)
    step = max(weights + kv, arithmetic)
    alone = _roofline_row(1, context, model, gpus)[4]
    if arithmetic >= weights + kv:
        bound = "arithmetic"
    else:
        bound = "the weights" if weights >= kv else "the KV cache"
    shape = cost.MODELS[model]
    held = (shape.parameters * shape.weight_bytes + shape.kv_bytes * batch * context) / 1e9
    room = _ROOFLINE_GB * _ROOFLINE_GPUS[gpus][1]
    fits = "fits" if held <= room else "does not fit"
    return (
        f"{model} on {gpus}, {batch} sequences with {context} tokens each: a step takes "
        f"{step:.2f} ms (weights {weights:.2f}, KV cache {kv:.2f}, arithmetic {arithmetic:.2f}), "
        f"{step / alone:.2f} times what it takes for one sequence; mostly {bound}. "
        f"{step / batch:.3f} ms per token. It needs {held:.0f} GB, which {fits} {room} GB."
    )


# --------------------------------------------- naive: who waits when requests are served one by one

_NAIVE_MEAN = 175  # output tokens
_NAIVE_RUNS = 8
_NAIVE_N = 250
_NAIVE_WARM = 50  # left out of each run: it begins with an empty queue
_NAIVE_T = 2.365  # Student's t for 95 % and 7 degrees of freedom
_NAIVE_RATES = tuple(i / 100 for i in range(2, 31))


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
    waits = _naive_load_waits(rate, spread)
    means = [math.fsum(w[_NAIVE_WARM:]) / (_NAIVE_N - _NAIVE_WARM) for w in waits]
    mean = math.fsum(means) / _NAIVE_RUNS
    variance = math.fsum((m - mean) ** 2 for m in means) / (_NAIVE_RUNS - 1)
    half = _NAIVE_T * math.sqrt(variance / _NAIVE_RUNS)
    first, second = _naive_load_service(spread)

    chart = svg.Chart(
        svg.Axis("Arrival rate (requests/s)", domain=(0, 0.31)),
        svg.Axis("Mean wait (s), logarithmic", "log", domain=(0.05, 500)),
        title="Mean wait for the server",
        height=210,
        legend="top",
    )
    curve = [_naive_load_theory(r, first, second) for r in _NAIVE_RATES]
    chart.line(f"theory, spread {spread:g}", _NAIVE_RATES, curve, color=1)
    if ghost and ghost["spread"] != spread:
        before = _naive_load_service(ghost["spread"])
        curve = [_naive_load_theory(r, *before) for r in _NAIVE_RATES]
        chart.line(f"theory, spread {ghost['spread']:g}", _NAIVE_RATES, curve, ghost=True)
    low, high = max(mean - half, 0.05), mean + half
    chart.line("", [rate, rate], [low, high], color=2)
    chart.scatter("each of eight runs", [rate] * _NAIVE_RUNS, means, color=3)
    chart.scatter("their mean, 95 % interval", [rate], [mean], color=2)
    chart.vline(1 / first, f"saturation, {1 / first:.2f}")

    one = svg.Chart(
        "Request",
        svg.Axis("Its wait (s)"),
        title="The first of the runs, request by request",
        height=140,
        legend="none",
    )
    one.step("wait", range(_NAIVE_N), waits[0], fill=True)
    if ghost:
        old = _naive_load_waits(ghost["rate"], ghost["spread"])[0]
        one.step("default", range(_NAIVE_N), old, ghost=True)

    rows: list[list[str | int | float | None]] = [
        [f"run {i}", m, max(w)] for i, (m, w) in enumerate(zip(means, waits, strict=True))
    ]
    rows.append(["mean", mean, None])
    rows.append(["theory", _naive_load_theory(rate, first, second), None])
    return svg.figure(
        "naive-load",
        chart,
        one,
        title="Naive serving: mean wait over the arrival rate, theory and runs",
        summary=_naive_load_told(rate, spread, mean, half),
        table=(["run", "mean wait (s)", "longest wait (s)"], rows),
    )


def _naive_load_lengths(spread: float) -> tuple[int, int]:
    """Return the short and the long output length: mean 175, one in ten is long."""
    return round(_NAIVE_MEAN * (1 - spread / 3)), round(_NAIVE_MEAN * (1 + 3 * spread))


@functools.lru_cache(maxsize=64)
def _naive_load_waits(rate: float, spread: float) -> list[list[float]]:
    """Serve eight workloads; return the wait of each request, in seconds."""
    short, long = _naive_load_lengths(spread)
    runs = []
    for seed in range(_NAIVE_RUNS):
        asked = workload.poisson(_NAIVE_N, rate, 512, [short] * 9 + [long], seed)
        records = simulate(asked, policies.Naive()).records
        runs.append(
            [((r.first_scheduled_ns or 0) - r.request.arrival_ns) / NS_PER_S for r in records]
        )
    return runs


@cache
def _naive_load_service(spread: float) -> tuple[float, float]:
    """Return the mean of the service time, in s, and of its square."""
    times = []
    for length in _naive_load_lengths(spread):
        alone = simulate([Request(0, 0, 512, length)], policies.Naive())
        times.append(alone.end_ns / NS_PER_S)
    short, long = times
    return 0.9 * short + 0.1 * long, 0.9 * short**2 + 0.1 * long**2


def _naive_load_theory(rate: float, first: float, second: float) -> float | None:
    """Return the mean wait of an M/G/1 queue, in s; None if the queue has no mean."""
    load = rate * first
    return rate * second / (2 * (1 - load)) if load < 1 else None


def _naive_load_told(rate: float, spread: float, mean: float, half: float) -> str:
    """Say how long the wait is, by theory and in the runs."""
    first, second = _naive_load_service(spread)
    theory, load = _naive_load_theory(rate, first, second), rate * first
    short, long = _naive_load_lengths(spread)
    lengths = f"outputs of {short} and, one in ten, {long} tokens" if spread else "175 tokens out"
    measured = f"in eight runs of {_NAIVE_N} requests it is {mean:.2f} ± {half:.2f} s"
    if theory is None:
        said = f"more work comes than can be done, so theory has no mean wait; {measured}"
        said += " and would grow with longer runs"
    else:
        said = f"theory says a mean wait of {theory:.2f} s, {measured}"
    return (
        f"{rate:g} requests/s, {lengths}: the server is asked for {load:.2f} of its time; {said}."
    )


# ---------------------------------- chunked: a token budget against stalls and against the wait

_CHUNKED_N = 80
_CHUNKED_SEED = 3
_CHUNKED_SHORT, _CHUNKED_LONG = 256, 4096
_CHUNKED_OUTPUT = (40, 160)
_CHUNKED_BUDGETS = (128, 192, 256, 384, 512, 1024, 2048, 4096)
_CHUNKED_WHOLE = 0  # stands for no budget: prompts are taken whole
_CHUNKED_WINDOW = (-0.5, 3.0)  # seconds around the arrival of the long prompt that is looked at


def chunked(
    token_budget: int = 512,
    rate: float = 2.0,
    long_percent: int = 15,
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw what a token budget does to the tail of ITL and to TTFT, and the steps around a stall.

    80 requests at the default prices with outputs of 40 to 160 tokens. Prompts have 256 tokens;
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
    budgets = sorted({*_CHUNKED_BUDGETS, token_budget})
    runs = {b: _chunked_run(b, rate, long_percent) for b in budgets}
    whole = _chunked_run(_CHUNKED_WHOLE, rate, long_percent)
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
            plane.line("default", *_chunked_curve(_CHUNKED_BUDGETS, *before[1:]), ghost=True)
        plane.scatter("", *_chunked_curve(before[:1], *before[1:]), ghost=True)
    plane.line("budgets from 128 to 4096", *_chunked_curve(budgets, rate, long_percent), color=1)
    plane.scatter("this budget", *_chunked_curve([token_budget], rate, long_percent), color=2)
    plane.scatter("no budget", *_chunked_curve([_CHUNKED_WHOLE], rate, long_percent), color=3)

    stalls = svg.Chart(
        svg.Axis("Time since that prompt arrived (s)", domain=_CHUNKED_WINDOW),
        "Length of the step (ms)",
        title=f"The steps when one {'long' if long_percent else 'short'} prompt comes",
        height=150,
        legend="top",
    )
    if before:
        stalls.step("default", *_chunked_steps(*before), ghost=True)
    stalls.step("no budget", *_chunked_steps(_CHUNKED_WHOLE, rate, long_percent), color=3)
    stalls.step("this budget", *_chunked_steps(token_budget, rate, long_percent), color=2)
    summary = (
        f"{rate:g} requests/s, {long_percent} % of the prompts long. "
        f"{_chunked_told(f'Budget {token_budget}', runs[token_budget])} "
        f"{_chunked_told('No budget', whole)}"
    )
    if before:
        summary += f" {_chunked_told('Default', _chunked_run(*before))}"
    return svg.figure(
        "chunked",
        plane,
        stalls,
        title="A token budget: tail of ITL against TTFT, and the steps around a stall",
        summary=summary,
        table=_chunked_table([*((svg.fmt(b), run) for b, run in runs.items()), ("none", whole)]),
    )


def _chunked_requests(rate: float, long_percent: int) -> list[Request]:
    """Return the requests; the k-th to become long does so whatever the rate."""
    n = _CHUNKED_N
    asked = workload.poisson(n, rate, _CHUNKED_SHORT, _CHUNKED_OUTPUT, _CHUNKED_SEED)
    long = set(_chunked_order()[: round(n * long_percent / 100)])
    return [replace(r, prompt_len=_CHUNKED_LONG) if r.id in long else r for r in asked]


def _chunked_order() -> list[int]:
    """Return the requests in the order in which they become long; first one from the middle."""
    rng = random.Random(_CHUNKED_SEED)
    dice = [rng.random() for _ in range(_CHUNKED_N)]
    order = sorted(range(_CHUNKED_N), key=dice.__getitem__)
    first = next(i for i in order if _CHUNKED_N // 4 <= i < _CHUNKED_N // 2)
    return [first, *(i for i in order if i != first)]


@functools.lru_cache(maxsize=256)
def _chunked_run(budget: int, rate: float, long_percent: int) -> Result:
    """Serve the 80 requests; the figure asks for the same runs again and again."""
    return simulate(_chunked_requests(rate, long_percent), _chunked_policy(budget))


@functools.lru_cache(maxsize=32)
def _chunked_steps(budget: int, rate: float, long_percent: int) -> tuple[list[float], list[float]]:
    """Return when steps start, in seconds after the long prompt's arrival, and their lengths."""
    requests = _chunked_requests(rate, long_percent)
    result = simulate(requests, _chunked_policy(budget), record_steps=True)
    zero = requests[_chunked_order()[0]].arrival_ns
    low, high = (zero + round(t * NS_PER_S) for t in _CHUNKED_WINDOW)
    times: list[int] = [low]
    lengths: list[int] = [0]
    for step in result.step_records:
        if step.end_ns > low and step.start_ns < high:
            if step.start_ns <= times[-1]:
                times.pop()
                lengths.pop()
            times += [max(low, step.start_ns), step.end_ns]
            lengths += [step.cost_ns, 0]
    return [(min(t, high) - zero) / NS_PER_S for t in times], [c / NS_PER_MS for c in lengths]


def _chunked_policy(budget: int) -> policies.Policy:
    """Return the policy for a budget; 0 for none."""
    return policies.Chunked(budget) if budget else policies.Continuous()


def _chunked_tail(result: Result) -> tuple[float, float]:
    """Return P99 ITL and mean TTFT, in milliseconds."""
    return result.itl_ms.percentile(99) or 0.0, result.ttft_ms.mean or 0.0


def _chunked_curve(
    budgets: Sequence[int], rate: float, long_percent: int
) -> tuple[list[float], list[float]]:
    """Return P99 ITL and mean TTFT of several budgets."""
    points = [_chunked_tail(_chunked_run(b, rate, long_percent)) for b in budgets]
    return [x for x, _ in points], [y for _, y in points]


def _chunked_told(name: str, result: Result) -> str:
    """Say how one run went."""
    tail, ttft = _chunked_tail(result)
    return (
        f"{name}: P99 ITL {tail:.0f} ms, longest gap {result.itl_ms.max or 0.0:,.0f} ms, "
        f"mean TTFT {ttft:,.0f} ms."
    )


def _chunked_table(
    runs: Sequence[tuple[str, Result]],
) -> tuple[list[str], list[list[str | int | float | None]]]:
    """Return one row per budget."""
    header = ["budget", *(f"{p} ITL (ms)" for p in ("P50", "P95", "P99")), "longest gap (ms)"]
    header += ["mean TTFT (ms)", "P99 TTFT (ms)", "throughput (tokens/s)"]
    rows: list[list[str | int | float | None]] = []
    for name, r in runs:
        gaps = [r.itl_ms.percentile(p) for p in (50, 95, 99)]
        ends = [r.ttft_ms.mean, r.ttft_ms.percentile(99), r.throughput_tok_s]
        rows.append([name, *gaps, r.itl_ms.max, *ends])
    return header, rows
