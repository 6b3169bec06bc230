"""Published experiments, run again: their setting, their figures, and ours beside them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import TypeAlias

from .compare import told
from .cost import OPT_13B_A100, Affine, Cost
from .engine import Engine, SupportsPlan
from .kv import KVCache
from .metrics import KVSplit, Result
from .policies import VLLM, Orca
from .request import Request, ns_from_s

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
