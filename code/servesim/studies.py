"""Published experiments, run again: their setting, their figures, and ours beside them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist, median
from typing import Any, TypeAlias

from .capacity import capacity
from .cost import GPUS, MODELS, OPT_13B_A100, Affine, Cost, Roofline
from .engine import Engine, SupportsPlan, simulate
from .evidence import Check, describe
from .kv import KVCache
from .metrics import KVSplit, Result
from .policies import VLLM, Chunked, Continuous, Orca, PrefillFirst, Static
from .request import NS_PER_S, Request, ns_from_s
from .table import told
from .workload import gamma

# -- the vLLM paper: how KV memory is used (Kwon et al., SOSP 2023, Fig. 2 and Fig. 13) ----------

KV_SLOTS = 15_700
"""Tokens that 12 GB hold at 800 KiB each: OPT-13B beside its weights on an A100 with 40 GB."""

MAX_LEN = 2048
RATE = 2.0

SEED = 1406
"""Of the first 1500 seeds the one whose 600 requests come nearest to the paper's two means and its
rate. Others give the same picture; the shares move by some points."""

Parts: TypeAlias = tuple[float | None, float | None, float | None, float | None]

PROMPT_LOG, OUTPUT_LOG = (4.466, 1.2), (5.508, 0.879)
"""Mean and deviation of the logarithm of prompt and output lengths; see `sharegpt_like`."""


def sharegpt_like(n: int = 600, rate: float = RATE, seed: int = SEED) -> list[Request]:
    """Generate Poisson arrivals with lengths that stand in for the paper's ShareGPT sample.

    The paper gives two means (161.31 prompt tokens, 337.99 output tokens) and a picture with a
    long tail; the sample is not published. We draw both lengths from lognormal distributions,
    the usual shape of what people write, and draw again if they add up to more than 2048.
    Cut like that, they have the paper's means. The spread of outputs is chosen so that requests
    in the batch are as long as in the paper's row Orca (Max): 33.7 % of the slots over 7
    requests, 756 tokens each. The spread of prompts is invented.

    Parameters
    ----------
    n : int
    rate : float
        Mean arrivals per second.
    seed : int
    """
    rng = random.Random(seed)
    clock, requests = 0.0, []
    for i in range(n):
        clock += rng.expovariate(rate)
        prompt, output = MAX_LEN, 1
        while prompt + output > MAX_LEN:
            prompt, output = _lognormal(rng, PROMPT_LOG), _lognormal(rng, OUTPUT_LOG)
        requests.append(Request(i, ns_from_s(clock), prompt, output))
    return requests


def _lognormal(rng: random.Random, log: tuple[float, float]) -> int:
    mean, deviation = log
    return max(1, round(exp(rng.normalvariate(mean, deviation))))


def slower(prices: Affine, factor: float) -> Affine:
    """Return a price list on which every step takes `factor` times as long."""
    return Affine(
        base_ms=round(prices.base_ms * factor, 6),
        prefill_us=round(prices.prefill_us * factor, 3),
        decode_us=round(prices.decode_us * factor, 3),
        context_ns=round(prices.context_ns * factor),
        decode_step_ms=round(prices.decode_step_ms * factor, 6),
        attention_ps=round(prices.attention_ps * factor),
    )


STEPS_SLOWER = 1.5
"""How much longer the paper's steps took than DistServe's fit says, from the paper's own figures.

At 2 requests/s and 30.42 in the batch, each was there for 15.2 s (Little's law): 45 ms for each
of its 337.99 tokens. DistServe's fit, made on later software, gives 30.6 ms for a decode step of
30.42 sequences that fill the cache.
"""


@dataclass(frozen=True)
class Row:
    """One system: what the paper says and what we get.

    Attributes
    ----------
    name : str
    note : str
        Which assumption explains the difference.
    split : KVSplit
        Ours, in percent of the cache.
    paged : bool
        Whether rounding up is the rest of a block, not of a buddy chunk.
    batched : float
        Ours: mean number of requests in the batch.
    paper_parts : tuple of float or None
        The paper's four parts, where it gives them; see `parts`.
    paper_batched : float
    preemptions : int
        In our run.
    """

    name: str
    note: str
    split: KVSplit
    paged: bool
    batched: float
    paper_parts: Parts
    paper_batched: float
    preemptions: int

    @property
    def parts(self) -> Parts:
        """Our split in the paper's four parts.

        Token states, reserved for later, internal fragmentation, external and other. The paper
        has no internal fragmentation for Orca (Oracle), so what its buddy allocator rounds up
        must be in the last part. A part that a system cannot have is None.
        """
        s = self.split
        if self.paged:
            return s.tokens, None, s.rounding, s.free
        return s.tokens, s.later, s.unused or None, s.rounding + s.free

    def lines(self) -> list[dict[str, object]]:
        """Return the paper's figures, ours, and the differences, one line of a table each."""
        paper = (*self.paper_parts, self.paper_batched)
        ours = (*self.parts, self.batched)
        both = [(a, b) for a, b in zip(ours, paper, strict=True)]
        digits = (1, 1, 1, 1, 2)
        less = [
            None if a is None or b is None else round(a - b, d) + 0.0  # no minus zero
            for (a, b), d in zip(both, digits, strict=True)
        ]
        lines: list[dict[str, object]] = []
        for name, who, values, sign in (
            (self.name, "paper", paper, ""),
            ("", "ours", ours, ""),
            ("", "difference", less, "+"),
        ):
            cells = [told(v, f"{sign}.{d}f") for v, d in zip(values, digits, strict=True)]
            lines.append({"system": name, "": who, **dict(zip(COLUMNS, cells, strict=True))})
        return lines


COLUMNS = (
    "token states (%)",
    "reserved (%)",
    "internal (%)",
    "external, other (%)",
    "requests in the batch",
)


def vllm_paper_kv(n: int = 600, seed: int = SEED, warm_up_s: float = 60.0) -> list[Row]:
    """Measure KV memory and batch as in Fig. 2 and Fig. 13 of the vLLM paper.

    OPT-13B on one A100 with 40 GB, 2 requests/s, DistServe's prices. Averages are over the time
    from `warm_up_s` to the last arrival, when queues have built up and do not yet run dry.

    Parameters
    ----------
    n : int
        Requests.
    seed : int
    warm_up_s : float

    Returns
    -------
    list of Row
        The paper's four systems in its order; then vLLM's once more with slower steps.
    """
    requests = sharegpt_like(n, seed=seed)
    whole, paged = KVCache(KV_SLOTS, 1, contiguous=True), KVCache(KV_SLOTS // 16, 16)
    slow = slower(OPT_13B_A100, STEPS_SLOWER)
    vllm: tuple[Parts, float] = ((96.3, None, None, None), 30.42)
    systems: tuple[tuple[str, SupportsPlan, KVCache, Affine, tuple[Parts, float], str], ...] = (
        (
            *("Orca (Max)", Orca("max"), whole, OPT_13B_A100),
            ((20.4, 13.3, 57.3, 8.9), 7.00),
            "none needed: 15,700 slots hold 7 chunks of 2048 whatever the lengths",
        ),
        (
            *("Orca (Pow2)", Orca("pow2"), whole, OPT_13B_A100),
            ((26.8, 17.9, 13.6, 41.6), 9.81),
            "chunks are rounded up to a power of two, which depends on the exact lengths",
        ),
        (
            *("Orca (Oracle)", Orca("oracle"), whole, OPT_13B_A100),
            ((38.2, 25.2, None, 36.6), 13.62),
            "as for Pow2",
        ),
        (
            *("vLLM", VLLM(), paged, OPT_13B_A100),
            vllm,
            "our steps are shorter, so requests leave sooner and the cache does not fill",
        ),
        (
            *(f"vLLM, steps {STEPS_SLOWER} times as long", VLLM(), paged, slow),
            vllm,
            "the cache is full, as in the paper; ours takes in the next as soon as a prompt fits, "
            "so it holds more and younger requests",
        ),
    )
    rows = []
    for name, policy, kv, cost, paper, note in systems:
        before, after = window(requests, policy, kv, cost, warm_up_s)
        batched = (after.running_ns - before.running_ns) / (after.end_ns - before.end_ns)
        split, paged_too = after.kv_split(before), not kv.contiguous
        rows.append(Row(name, note, split, paged_too, batched, *paper, after.preemptions))
    return rows


def window(
    requests: Sequence[Request],
    policy: SupportsPlan,
    kv: KVCache,
    cost: Cost = OPT_13B_A100,
    warm_up_s: float = 60.0,
) -> tuple[Result, Result]:
    """Run until the last arrival; return what had happened after the warm-up, and then."""
    engine = Engine(requests, policy, cost=cost, kv=kv)
    results = []
    for until_ns in (ns_from_s(warm_up_s), requests[-1].arrival_ns):
        while engine.view.clock_ns < until_ns and engine.advance():
            pass
        results.append(engine.result())
    return results[0], results[1]


def kv_checks(rows: Sequence[Row]) -> list[Check]:
    """Hold token states (within 5 points) and batch (within 10 %) against Fig. 2 and Fig. 13."""
    checks = []
    for row in rows:
        ours, paper = row.parts[0] or 0.0, row.paper_parts[0] or 0.0
        checks.append(Check(f"token states of {row.name} (%)", ours, paper, 5, "points"))
        checks.append(Check(f"batch of {row.name}", row.batched, row.paper_batched, 0.1))
    return checks


# -- the vLLM paper: how much load at equal latency (Fig. 12) -------------------------------------

LEVEL_S = 0.1
"""Normalized latency at which rates are compared: a tenth of a second per output token, 4 to 5
times that of an empty server, and where all curves have begun to rise steeply."""


def normalized_s(result: Result) -> float:
    """Return the vLLM paper's normalized latency: E2E per output token, mean over requests."""
    ns = [r.e2e_ns / r.output_tokens for r in result.finished if r.e2e_ns is not None]
    return sum(ns) / len(ns) / NS_PER_S


def vllm_paper_rates(
    n: int = 600, level_s: float = LEVEL_S, cost: Cost = OPT_13B_A100, tolerance: float = 0.05
) -> dict[str, dict[float, float]]:
    """Raise the rate until the normalized latency exceeds a level, for the paper's four systems.

    Parameters
    ----------
    n : int
        Requests at each rate.
    level_s : float
        Seconds per output token.
    cost : Cost
    tolerance : float
        Each rate is above the one before by this share; see `servesim.capacity`.

    Returns
    -------
    dict
        By system, its normalized latency in seconds by rate in requests/s. The last rate is the
        first that exceeds the level, so the one before is what the system carries.
    """
    whole, paged = KVCache(KV_SLOTS, 1, contiguous=True), KVCache(KV_SLOTS // 16, 16)
    systems: dict[str, tuple[SupportsPlan, KVCache, float]] = {  # and where to start
        "Orca (Max)": (Orca("max"), whole, 0.4),
        "Orca (Pow2)": (Orca("pow2"), whole, 0.6),
        "Orca (Oracle)": (Orca("oracle"), whole, 0.8),
        "vLLM": (VLLM(), paged, 1.5),
    }
    curves: dict[str, dict[float, float]] = {}
    for name, (policy, kv, low) in systems.items():
        curve: dict[float, float] = {}

        def meets(rate: float) -> bool:
            run = simulate(sharegpt_like(n, rate), policy, cost=cost, kv=kv)  # noqa: B023
            curve[rate] = normalized_s(run)  # noqa: B023
            return curve[rate] <= level_s  # noqa: B023

        capacity(meets, low=low, high=10.0, tolerance=tolerance)
        curves[name] = curve
    return curves


def carried(curve: dict[float, float]) -> float:
    """Return the last rate before the one that exceeded the level."""
    return sorted(curve)[-2]


def rate_checks(curves: dict[str, dict[float, float]]) -> list[Check]:
    """Hold vLLM's gains in rate against the ranges that the paper states, within 10 %."""
    rates = {name: carried(curve) for name, curve in curves.items()}
    return [
        Check(f"rate over {name}", rates["vLLM"] / rates[name], published, 0.1)
        for name, published in (("Orca (Oracle)", (1.7, 2.7)), ("Orca (Max)", (2.7, 8.0)))
    ]


# -- Anyscale: throughput against the spread of output lengths ------------------------------------


def anyscale(longest: int, n: int = 256, seed: int = 1) -> dict[str, float]:
    """Compare static batching, continuous batching and paging as Anyscale's study did (2023).

    OPT-13B, prompts of 512 tokens, outputs from an exponential distribution that is cut off at
    `longest`, all there at the start. Without paging each place in the batch has room for the
    longest; memory is that of the vLLM paper, on the same GPU. The mean of 128 tokens is ours.

    Returns
    -------
    dict
        The spread of the outputs (coefficient of variation), places in the batch, and tokens per
        second by system.
    """
    rng = random.Random(seed)
    outputs = [min(1 + int(rng.expovariate(1 / 128)), longest) for _ in range(n)]
    requests = [Request(i, 0, 512, output) for i, output in enumerate(outputs)]
    mean = sum(outputs) / n
    places = KV_SLOTS // (512 + longest)
    paged = KVCache(KV_SLOTS // 16, 16)
    return {
        "spread": (sum(o * o for o in outputs) / n / mean**2 - 1) ** 0.5,
        "places": places,
        "static": _tokens_per_s(simulate(requests, Static(places))),
        "continuous": _tokens_per_s(simulate(requests, Continuous(places))),
        "paged": _tokens_per_s(simulate(requests, VLLM(), kv=paged)),
    }


def anyscale_checks(longest: int = 1536) -> list[Check]:
    """Hold the factors at the widest spread against the published 4, 8 and 23, within 25 %.

    Static batching stands for the faster static engine (4 times the simple one), so that what
    the kernels gain cancels out.
    """
    run = anyscale(longest)
    static, continuous, paged = run["static"], run["continuous"], run["paged"]
    return [
        Check("continuous over static", continuous / static, 8 / 4, 0.25),
        Check("paged over continuous", paged / continuous, 23 / 8, 0.25),
        Check("paged over static", paged / static, 23 / 4, 0.25),
    ]


def _tokens_per_s(result: Result) -> float:
    return result.throughput_tok_s or 0.0


# -- Sarathi-Serve: load under a bound on the tail (OSDI 2024) ------------------------------------

SARATHI_BOUNDS = {"strict": (100.0, 512), "relaxed": (500.0, 2048)}
"""Bound on P99 of the gaps in ms, and the token budget used with it."""

SARATHI_PERCENTILES = {"prompt": (1730, 5696), "output": (415, 834)}
"""Median and P90 of the paper's conversations, in tokens."""


def conversations(rate: float, n: int = 512, seed: int = 1) -> list[Request]:
    """Generate Poisson arrivals of long conversations: lognormal lengths, 8192 tokens at most."""
    rng, clock, requests = random.Random(seed), 0.0, list[Request]()
    shapes = []
    for p50, p90 in SARATHI_PERCENTILES.values():
        shapes.append((log(p50), log(p90 / p50) / NormalDist().inv_cdf(0.9)))
    while len(requests) < n:
        prompt, output = (_lognormal(rng, shape) for shape in shapes)
        if prompt + output <= 8192:
            clock += rng.expovariate(rate)
            requests.append(Request(len(requests), ns_from_s(clock), prompt, output))
    return requests


def in_turn(model: str = "llama-3-8b", gpu: str = "a100") -> Affine:
    """Return the roofline's numbers as a sum: a machine that computes and reads in turn."""
    m, g = MODELS[model], GPUS[gpu]
    token_us = round(2e6 * m.parameters / g.flops, 3)
    return Affine(
        base_ms=round(1e3 * m.parameters * m.weight_bytes / g.bandwidth, 3),
        prefill_us=token_us,
        decode_us=token_us,
        context_ns=round(1e9 * m.kv_bytes / g.bandwidth),
    )


def sarathi_capacity(
    bound: str, cost: Cost, n: int = 512, tolerance: float = 0.1
) -> tuple[float, float]:
    """Find the rates that prefill-first and chunked prefill carry under Sarathi-Serve's bound.

    P99 ITL within the bound, and half of the requests start within 2 s for its 2048 requests,
    in proportion for fewer.

    Parameters
    ----------
    bound : {"strict", "relaxed"}
    cost : Cost
    n : int
    tolerance : float
        As for `servesim.capacity`.

    Returns
    -------
    (float, float)
        Requests per second: prefill-first, chunked.
    """
    limit_ms, budget = SARATHI_BOUNDS[bound]
    rates = []
    for policy, low in ((PrefillFirst(8192, 128), 1.5), (Chunked(budget, max_running=128), 3.0)):

        def meets(rate: float, policy: SupportsPlan = policy) -> bool:
            run = simulate(conversations(rate, n), policy, cost=cost)
            waits = [(r.first_scheduled_ns or 0) - r.request.arrival_ns for r in run.records]
            in_time = median(waits) <= 2e9 * n / 2048
            return in_time and (run.itl_ms.percentile(99) or 0.0) <= limit_ms

        rates.append(capacity(meets, low=low, high=20.0, tolerance=tolerance).rate or 0.0)
    return rates[0], rates[1]


def sarathi_checks(n: int = 512) -> list[Check]:
    """Hold the gain under the strict bound against the published 2.6, within 25 %."""
    machines: dict[str, Cost] = {"overlap": Roofline("llama-3-8b", "a100"), "in turn": in_turn()}
    gains = {}
    for name, cost in machines.items():
        first, chunked = sarathi_capacity("strict", cost, n)
        gains[name] = chunked / first
    return [Check(f"chunked over prefill first, {name}", x, 2.6, 0.25) for name, x in gains.items()]


# -- production traces beside generators ----------------------------------------------------------

TRACES = {
    "azure_conv": ("AzureLLMInferenceTrace_conv.csv", 1, "a100"),
    "azure_code": ("AzureLLMInferenceTrace_code.csv", 1, "a100"),
    "mooncake": ("mooncake_synthetic_trace.jsonl.gz", 2, "h100"),
}
"""File of each trace, which of its requests one server gets (each, or every second), and its GPU.

So that the server is busy, and not overloaded. All run Llama-3-8B.
"""

TRACE_POLICIES: tuple[SupportsPlan, ...] = (PrefillFirst(), Chunked(512), VLLM())


def latencies(
    requests: Sequence[Request], policy: SupportsPlan, trace: str
) -> dict[str, float | None]:
    """Run a trace, or what stands for it, on the machine of `TRACES`; return four latencies."""
    run = simulate(requests, policy, cost=in_turn(gpu=TRACES[trace][2]))
    return {
        "mean TTFT (ms)": run.ttft_ms.mean,
        "P99 TTFT (ms)": run.ttft_ms.percentile(99),
        "P99 ITL (ms)": run.itl_ms.percentile(99),
        "mean E2E (ms)": run.e2e_ms.mean,
    }


def generated(trace: str, facts: dict[str, Any], bursty: bool, n: int = 2000) -> list[Request]:
    """Make requests that stand for a trace: its length table, its rate, and if `bursty` its gaps.

    Parameters
    ----------
    trace : str
        In `TRACES`.
    facts : dict
        What `servesim.evidence.describe` says of the trace.
    bursty : bool
        Gamma-distributed gaps with the trace's coefficient of variation; otherwise Poisson.
    n : int
    """
    cv = facts["gap_cv"] if bursty else 1.0
    return gamma(n, facts["rate"], cv, trace, trace, seed=1)


def length_checks(trace: str, facts: dict[str, Any]) -> list[Check]:
    """Hold lengths of 4000 generated requests against a trace: mean, P50, P90, within 10 %."""
    ours = describe(generated(trace, facts, bursty=False, n=4000))
    return [
        Check(f"{what} of {trace}'s {side}s", ours[side][what], facts[side][what], 0.1)
        for side in ("prompt", "output")
        for what in ("mean", "p50", "p90")
    ]


def gap_checks(trace: str, facts: dict[str, Any]) -> list[Check]:
    """Hold Poisson arrivals against a trace: gaps and dispersion (25 %), correlation (0.1)."""
    ours = describe(generated(trace, facts, bursty=False, n=4000))
    return [
        Check(f"spread of the gaps of {trace}", ours["gap_cv"], facts["gap_cv"], 0.25),
        Check(f"dispersion of {trace}", ours["dispersion"], facts["dispersion"], 0.25),
        Check(
            f"correlation of lengths of {trace}",
            *(ours["correlation"], facts["correlation"], 0.1, "absolute"),
        ),
    ]


def latency_checks(trace: str, facts: dict[str, Any], bursty: bool, n: int = 2000) -> list[Check]:
    """Hold vLLM's policy on a generator against the same on the trace itself, within 25 %."""
    requests = generated(trace, facts, bursty, n)
    ours, real = latencies(requests, VLLM(), trace), facts["runs"][repr(VLLM())]
    kind = "gamma" if bursty else "Poisson"
    return [
        Check(f"{what} of {trace} ({kind})", ours[what] or 0.0, real[what], 0.25)
        for what in ("mean E2E (ms)", "P99 TTFT (ms)", "P99 ITL (ms)")
    ]
