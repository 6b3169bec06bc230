"""The live figure of the chapter on design: the rate up to which each policy keeps a promise."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from .. import policies, svg, workload
from ..capacity import Capacity, grid
from ..capacity import capacity as search
from ..engine import simulate
from ..errors import InputError
from ..kv import KVCache
from ..metrics import SLO

_N = 100
_SEED = 3
_CHAT = 60  # of the requests; the others are bulk
_BLOCKS = 981  # of 16 tokens: 12 GB beside OPT-13B on an A100 with 40 GB
_LOW, _HIGH, _TOLERANCE = 0.4, 1.8, 0.15
_POLICIES: dict[str, policies.Policy] = {
    "first come": policies.VLLM(512),
    "priority": policies.Priority(512, patience_s=10),
    "shortest": policies.ShortestFirst(512, error=0.5),
    "fair": policies.Fair(512),
    "shedding": policies.Shedding(512, patience_s=1.5),
}


def capacity(
    ttft_ms: float = 2000,
    tpot_ms: float = 100,
    percent: float = 90,
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw up to which arrival rate each policy keeps a promise, and what happens beyond.

    The promise: so many percent of all requests keep the limits. 100 requests at the default
    prices, 60 of one tenant in a Poisson process and 40 of another, less urgent one in bursts,
    with the lengths of real conversations and 981 KV blocks.

    Parameters
    ----------
    ttft_ms, tpot_ms : float
        Limits for a request.
    percent : float
        Share of the requests that has to keep them. Who is turned away does not.
    ghost : dict, optional
        The parameters of the default promise, to be kept visible.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    if not 0 < percent <= 100:
        raise InputError(f"capacity: percent is from above 0 to 100, not {percent!r}")
    slo, rates = SLO(ttft_ms, tpot_ms), list(grid(_LOW, _HIGH, _TOLERANCE))
    kept = {name: [_kept(name, rate, slo) for rate in rates] for name in _POLICIES}
    found = {name: _found(name, slo, percent) for name in _POLICIES}

    bars = svg.Chart(
        svg.Axis(categories=list(_POLICIES)),
        svg.Axis("requests/s", domain=(0, 2)),
        title="Highest rate at which the promise is kept",
        height=120,
        legend="top" if ghost else "none",
    )
    bars.bars("this promise", [_shown(found[name].rate) for name in _POLICIES])
    if ghost:
        before = SLO(float(ghost["ttft_ms"]), float(ghost["tpot_ms"]))
        old = [_found(name, before, float(ghost["percent"])).rate for name in _POLICIES]
        bars.bars("default promise", [_shown(rate) for rate in old], ghost=True)

    lines = svg.Chart(
        "Arrival rate (requests/s)",
        svg.Axis("In time (%)", domain=(0, 105)),
        title="Requests that keep both limits",
        height=180,
        legend="top",
    )
    for name, shares in kept.items():
        lines.line(name, rates, shares)
    lines.hline(percent, "promise")
    return svg.figure(
        "capacity",
        bars,
        lines,
        title="How much load each policy carries under a promise",
        summary=(
            f"{percent:g} % of requests with TTFT up to {ttft_ms:,g} ms and TPOT up to "
            f"{tpot_ms:g} ms, in requests/s: "
            f"{'; '.join(f'{name} {one}' for name, one in found.items())}."
        ),
        table=(
            [
                "policy",
                "capacity (requests/s)",
                *(f"in time at {rate:.2f}/s (%)" for rate in rates),
            ],
            [[name, str(found[name]), *shares] for name, shares in kept.items()],
        ),
    )


def _found(name: str, slo: SLO, percent: float) -> Capacity:
    """Search the grid for a policy's capacity."""
    return search(
        lambda rate: _kept(name, rate, slo) >= percent, low=_LOW, high=_HIGH, tolerance=_TOLERANCE
    )


def _shown(rate: float | None) -> float:
    """Return the height of a bar; none where even the lowest rate fails."""
    return float(f"{rate or 0:.2f}")


@lru_cache(maxsize=512)
def _kept(name: str, rate: float, slo: SLO) -> float:
    """Return how many percent of all requests keep the limits."""
    return 100 * sum(slo.kept(*times) for times in _times(name, rate)) / _N


@cache
def _times(name: str, rate: float) -> list[tuple[int | None, float | None]]:
    """Return TTFT and TPOT of the requests that were served; no promise changes them."""
    part = rate * _CHAT / _N
    chat = workload.poisson(_CHAT, part, "azure_conv", "azure_conv", _SEED)
    bulk = workload.gamma(_N - _CHAT, rate - part, 3, "azure_conv", "azure_conv", _SEED + 100)
    requests = workload.merge({"chat": chat, "bulk": bulk}, {"bulk": 1})
    result = simulate(requests, _POLICIES[name], kv=KVCache(_BLOCKS))
    return [(r.ttft_ns, r.tpot_ns) for r in result.finished]
