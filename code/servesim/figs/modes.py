"""The live figure of the chapter on four modes: a published table at other prices."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Literal

from .. import cost, policies, svg, systems, workload
from ..engine import simulate
from ..errors import InputError
from ..kv import KVCache
from ..plan import Plan, View
from ..request import Request

_MODES = ("naive", "static", "continuous", "chunked")
_PRICES: dict[str, cost.Cost] = {
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
    for value, known in ((prices, [*_PRICES]), (padding, ["paid", "none"])):
        if value not in known:
            raise InputError(f"four_modes: no {value!r}; use one of {'; '.join(known)}")
    static = "static" if padding == "paid" else "static, unpadded"
    shared = [_row(mode, prices, kv_blocks, rate, seed) for mode in (static, *_MODES[2:])]
    # Alone, whoever fits at all has the memory to itself: its size changes nothing.
    ours = [_row("naive", prices, None, rate, seed), *shared]
    table = _published()

    panels = []
    for i, (name, good) in enumerate(
        (("Throughput", "high"), ("Mean TTFT", "low"), ("P99 ITL", "low"))
    ):
        x = svg.Axis(categories=_MODES)
        kind: svg.ScaleKind = "log" if i else "linear"
        y = svg.Axis(f"times naive's, {kind} scale ({good} is good)", kind)
        legend: Literal["top", "none"] = "none" if i else "top"
        chart = svg.Chart(x, y, title=name, height=130, legend=legend)
        chart.bars("this run", [float(f"{row[i] / ours[0][i]:.3g}") for row in ours])
        chart.bars("published", [row[i] / table[0][i] for row in table], ghost=True)
        panels.append(chart)

    header = ["mode", "tokens/s", "TTFT (ms)", "P99 ITL (ms)"]
    rows: list[list[svg.Cell]] = [
        [mode, *row, *old] for mode, row, old in zip(_MODES, ours, table, strict=True)
    ]
    return svg.figure(
        "four-modes",
        *panels,
        title="Four modes at one price list, beside the published table",
        summary=f"{prices}, {kv_blocks:,} blocks, {rate:g} requests/s: {_told(ours)}",
        table=([*header, *(f"published {name}" for name in header[1:])], rows),
    )


class _Unpadded(policies.Static):
    """Static batching that pays for real prompts and for unfinished members only."""

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        plan.padded_prompt = plan.idle_slots = 0
        return plan


_POLICIES: dict[str, policies.Policy] = {
    "naive": policies.Naive(),
    "static": policies.Static(16),
    "static, unpadded": _Unpadded(16),
    "continuous": policies.Continuous(),
    "chunked": policies.Chunked(chunk=512),
}


@lru_cache(maxsize=8)
def _requests(rate: float, seed: int) -> list[Request]:
    return workload.poisson(60, rate, [128, 256, 512, 2048, 8192], (50, 300), seed)


@lru_cache(maxsize=256)
def _row(
    mode: str, prices: str, blocks: int | None, rate: float, seed: int
) -> tuple[float, float, float]:
    """Return a mode's tokens/s, mean TTFT and P99 ITL in milliseconds."""
    kv, price = KVCache(blocks), _PRICES[prices]
    result = simulate(_requests(rate, seed), _POLICIES[mode], cost=price, kv=kv)
    gap = result.itl_ms.percentile(99)
    return result.throughput_tok_s or 0.0, result.ttft_ms.mean or 0.0, gap or 0.0


@cache
def _published() -> list[tuple[float, float, float]]:
    """Return the published table, computed by system A's own rules."""
    modes = systems.toy_report()["modes"].values()
    return [(m["throughput_tok_s"], m["mean_ttft_ms"], m["p99_itl_ms"]) for m in modes]


def _told(rows: list[tuple[float, float, float]]) -> str:
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
