"""The live figure of the chapter on validation: how close policies come to the lower bound."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from .. import policies, svg, workload
from ..cost import OPT_13B_A100
from ..engine import simulate
from ..kv import KVCache
from ..request import Request

_N = 20  # two full groups of static batching
_SEED = 1
_RATES = (1, 2, 4, 8, 16)
_POLICIES = {
    "vLLM": policies.VLLM(),
    "static": policies.Static(10),
}


def lower_bound(
    memory: int = 16000, prompt: int = 512, ghost: Mapping[str, int] | None = None
) -> svg.Figure:
    """Draw the bound's share of the makespan over the arrival rate, for two policies.

    20 requests with outputs of 50 to 300 tokens, at the default prices; static batching takes
    groups of 10.

    Parameters
    ----------
    memory : int
        Tokens that the KV cache holds, in blocks of 16.
    prompt : int
        Tokens in each prompt.
    ghost : mapping, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is out of range, or a request does not fit the memory.
    """
    runs = _runs(memory, prompt)
    before = _runs(ghost["memory"], ghost["prompt"]) if ghost else None
    chart = svg.Chart(
        svg.Axis("Arrival rate (requests/s)", "log2"),
        svg.Axis("Lower bound, in % of the makespan", domain=(0, 100)),
        height=230,
        legend="top",
    )
    for i, name in enumerate(_POLICIES):
        chart.line(name, _RATES, [shares[name] for _, shares in runs], color=i + 1)
    if before and before != runs:
        for name in ("vLLM", "static"):
            old = [shares[name] for _, shares in before]
            chart.line(f"{name}, default", _RATES, old, ghost=True)
    header = ["requests/s", "bound (s)", *(f"{name} (%)" for name in _POLICIES)]
    rows: list[list[svg.Cell]] = [
        [f"{rate:g}", bound_s, *shares.values()]
        for rate, (bound_s, shares) in zip(_RATES, runs, strict=True)
    ]
    bound_s, shares = runs[-1]
    told = ", ".join(f"{name} {share:.0f} %" for name, share in shares.items())
    return svg.figure(
        "lower-bound",
        chart,
        title="How close policies come to the lower bound",
        summary=f"At {_RATES[-1]:g} requests/s no policy needs less than {bound_s:.1f} s. "
        f"That is, in percent of what each needs: {told}.",
        table=(header, rows),
    )


@functools.lru_cache(maxsize=64)
def _requests(rate: int, prompt: int) -> list[Request]:
    return workload.poisson(_N, rate, prompt, (50, 300), _SEED)


@functools.lru_cache(maxsize=64)
def _runs(memory: int, prompt: int) -> list[tuple[float, dict[str, float]]]:
    """Return for each rate the bound in seconds, and its share of each policy's makespan."""
    kv, found = KVCache(memory // 16), []
    for rate in _RATES:
        requests = _requests(rate, prompt)
        bound_ns = OPT_13B_A100.lower_bound(requests, kv)
        spans = {name: simulate(requests, p, kv=kv).makespan_ns for name, p in _POLICIES.items()}
        found.append((bound_ns / 1e9, {name: 100 * bound_ns / ns for name, ns in spans.items()}))
    return found
