"""What one step costs, given what is in it.

Prices are whole nanoseconds, so that a run's clock is a whole number and comes out equal on
every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import gcd
from typing import Any, NamedTuple, Protocol

from . import bound
from .checks import flag, instance, list_of, maybe, whole_from
from .errors import InputError, brief
from .kv import KVCache
from .request import Request


class Work(NamedTuple):
    """What is computed in one step.

    Attributes
    ----------
    prefill_tokens : int
        Prompt tokens (and tokens recomputed after a preemption), padding included.
    decodes : int
        Sequences that decode one token, idle slots of a padded batch included.
    context_tokens : int
        Tokens in the KV cache that the decoding sequences attend to, their own included.
    attention_pairs : int
        Growth of ``sum(len ** 2)`` over the prompts: what attention in the prefill costs.
    longest_prefill : int
        Most prefill tokens of one request in this step, padding included.
    """

    prefill_tokens: int = 0
    decodes: int = 0
    context_tokens: int = 0
    attention_pairs: int = 0
    longest_prefill: int = 0


new_work: Callable[[tuple[int, int, int, int, int]], Work] = partial(tuple.__new__, Work)
"""The same as ``Work(*numbers)`` in a third of the time: the engine does it in every step."""


class Cost(Protocol):
    """A price list: anything that prices a step.

    One whose decode steps grow by the same amount from step to step may also have a method
    ``growth_ns(decodes)`` that tells it; the engine then need not price each of them. Any other
    may have a method ``prices_ns(work, decodes, steps)`` that prices `steps` decode steps in a
    row: the first is `work`, and from one to the next there are `decodes` context tokens more.
    No step may be cheaper than the one before it.
    """

    def price_ns(self, work: Work) -> int:
        """Return what the step costs, in whole nanoseconds."""


def shortcut(prices: object, name: str) -> Any:
    """Return a method that sums up `price_ns`, or None where it may not speak for it.

    A subclass that changes how a step is priced inherits the method of a class that knows
    nothing of the change, so anything it overrides puts the inherited method out of use.
    """
    changed: set[str] = set()
    for cls in type(prices).__mro__:
        known = {n for n, v in vars(cls).items() if callable(v) or isinstance(v, property)}
        if name in known:
            return None if changed & known else getattr(prices, name)
        changed |= {n for n in known if not n.startswith("__")}
    return None


MAX_PRICE = 10**18
"""Highest price accepted, in units of the clock: every time can still be shown as a float."""


def whole(name: str, value: float, scale: int, unit: str = "ns") -> int:
    """Convert a price to whole units of the clock.

    Raises
    ------
    InputError
        If it is no number, is negative or above `MAX_PRICE`, or is finer than one unit.
    """
    try:
        exact = Fraction(-1) if isinstance(value, str) else Fraction(str(value)) * scale
    except ValueError:
        exact = Fraction(-1)
    if not 0 <= exact <= MAX_PRICE:
        limit = f"{MAX_PRICE / scale:g}"
        raise InputError(f"price {name} must be a number from 0 to {limit}, not {brief(value)}")
    if exact.denominator != 1:
        nearest = round(exact) / scale
        raise InputError(
            f"price {name}={value} is finer than 1 {unit}, and the clock counts whole ones; "
            f"use {nearest:.15g} instead"
        )
    return int(exact)


@dataclass(frozen=True)
class Affine:
    """A price list that adds up: so much per step, per token, per sequence.

    ``step = base + decode_step (if anyone decodes) + prefill * prefill tokens
    + decode * decoding sequences + context * context tokens + attention * attention pairs``

    Parameters
    ----------
    base_ms : float
        Every step, in milliseconds.
    decode_step_ms : float
        On top of it, a step in which anyone decodes.
    prefill_us : float
        Per prompt token, in microseconds.
    decode_us : float
        Per decoding sequence.
    context_ns : float
        Per token of context read by a decoding sequence, in nanoseconds.
    attention_ps : float
        Per pair of tokens in a prompt (``len ** 2`` for a whole prompt), in picoseconds. A
        step's sum is rounded down to a nanosecond.
    padding_priced_once : bool
        A quirk of two published toy programs: a batch of prompts padded to the same length is
        charged for one of them only, as if the others were free.

    Raises
    ------
    InputError
        If a price is negative, not a number, or finer than the clock.
    """

    base_ms: float = 0.0
    prefill_us: float = 0.0
    decode_us: float = 0.0
    context_ns: float = 0.0
    decode_step_ms: float = 0.0
    attention_ps: float = 0.0
    padding_priced_once: bool = False
    _ns: tuple[int, int, int, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        flag(padding_priced_once=self.padding_priced_once)
        prices = (
            whole("base_ms", self.base_ms, 1_000_000),
            whole("decode_step_ms", self.decode_step_ms, 1_000_000),
            whole("prefill_us", self.prefill_us, 1_000),
            whole("decode_us", self.decode_us, 1_000),
            whole("context_ns", self.context_ns, 1),
            whole("attention_ps", self.attention_ps, 1, "ps"),
        )
        object.__setattr__(self, "_ns", prices)

    def price_ns(self, work: Work) -> int:
        """Return what the step costs, in whole nanoseconds."""
        base, decode_step, prefill, decode, context, attention = self._ns
        tokens, decodes, context_tokens, pairs, longest = work
        price = base + prefill * (longest if self.padding_priced_once else tokens)
        if decodes:
            price += decode_step + decode * decodes + context * context_tokens
        if attention:
            price += attention * pairs // 1_000
        return price

    def growth_ns(self, decodes: int) -> int:
        """Return what a decode step costs more than the one before it, for the same sequences."""
        return self._ns[4] * decodes

    def prefill_ns(self, tokens: int) -> int:
        """Return the price of `tokens` prompt tokens alone, without the step's base."""
        return self._ns[2] * tokens

    def lower_bound(self, requests: Iterable[Request], kv: KVCache | None = None) -> int:
        """Return a makespan in nanoseconds that no policy beats, if it serves all requests.

        See `servesim.bound.makespan_ns`.

        Raises
        ------
        InputError
            If there is no request, or a subclass changes the price and not the bound.
        """
        _check_bound(self)
        base, decode_step, prefill, decode, context, attention = (1000 * p for p in self._ns)
        if attention:  # a step's sum is rounded down by less than a nanosecond
            attention = self._ns[5] if base else 0
            base = max(0, base - 1000)
        once = self.padding_priced_once
        prices = bound.Prices(base, decode_step, prefill, decode, context, attention, once)
        return bound.makespan_ns(requests, prices, _room(kv))


@dataclass(frozen=True)
class Model:
    """The numbers of a model that decide what a step costs.

    Attributes
    ----------
    parameters : int
        Number of weights.
    kv_bytes : int
        Bytes of keys and values per token: ``2 * layers * kv_heads * head_dim * 2``.
    """

    parameters: int
    kv_bytes: int
    weight_bytes: int = 2


@dataclass(frozen=True)
class Gpu:
    """The two speeds of a GPU: arithmetic (FLOP/s, bf16 dense) and memory (bytes/s)."""

    flops: int
    bandwidth: int


def kv_bytes(layers: int, kv_heads: int, head_dim: int) -> int:
    """Return the KV bytes of one token in bf16: keys and values, 2 bytes a number."""
    whole_from(1, layers=layers, kv_heads=kv_heads, head_dim=head_dim)
    return 2 * layers * kv_heads * head_dim * 2


# Published shapes: Llama-3-8B (32 layers, 8 KV heads, head size 128) and 70B (80, 8, 128) from
# the Llama 3 model cards; OPT-13B (40, 40, 128) from the OPT paper; Llama-2-70B (80, 8, 128;
# 69.0e9 weights by its shape) from the Llama 2 paper and its published configuration.
MODELS = {
    "llama-3-8b": Model(8_030_000_000, kv_bytes(32, 8, 128)),
    "llama-3-70b": Model(70_600_000_000, kv_bytes(80, 8, 128)),
    "opt-13b": Model(13_000_000_000, kv_bytes(40, 40, 128)),
    "llama-2-70b": Model(69_000_000_000, kv_bytes(80, 8, 128)),
}

# NVIDIA's data sheets: H100 SXM 989 TFLOP/s and 3.35 TB/s, A100 80 GB SXM 312 and 2.039.
GPUS = {
    "h100": Gpu(989 * 10**12, 3_350 * 10**9),
    "a100": Gpu(312 * 10**12, 2_039 * 10**9),
}


@dataclass(frozen=True)
class Roofline:
    """A lower bound from published numbers: the slower of arithmetic and memory traffic.

    A step needs ``2 * parameters`` operations per token, and must read all weights and the KV
    cache of the decoding sequences once. Real kernels reach part of either speed.

    Parameters
    ----------
    model, gpu : str
        Names in `MODELS` and `GPUS`.
    gpus : int
        Number of GPUs that share the step evenly, communication not counted.

    Raises
    ------
    InputError
        If a name is not known or `gpus` is not positive.
    """

    model: str = "llama-3-8b"
    gpu: str = "h100"
    gpus: int = 1

    def __post_init__(self) -> None:
        for kind, name, known in (("model", self.model, MODELS), ("gpu", self.gpu, GPUS)):
            if not isinstance(name, str) or name not in known:
                raise InputError(
                    f"roofline: unknown {kind} {brief(name)}; known are {', '.join(known)}"
                )
        whole_from(1, gpus=self.gpus)

    def price_ns(self, work: Work) -> int:
        """Return what the step costs at least, rounded up to a whole nanosecond."""
        return max(self.compute_ns(work), self.memory_ns(work))

    def prices_ns(self, work: Work, decodes: int, steps: int) -> list[int]:
        """Return what decode steps in a row cost: only the memory traffic grows."""
        model = MODELS[self.model]
        least = self.compute_ns(work)
        divisor = GPUS[self.gpu].bandwidth * self.gpus
        shorter = gcd(1_000_000_000, divisor)  # small numbers are quick
        read = model.parameters * model.weight_bytes + model.kv_bytes * work.context_tokens
        more, ns, divisor = model.kv_bytes * decodes, 1_000_000_000 // shorter, divisor // shorter
        prices = [-(-(read + j * more) * ns // divisor) for j in range(steps)]
        return prices if prices[0] >= least else [max(least, price) for price in prices]

    def compute_ns(self, work: Work) -> int:
        """Return the time the arithmetic takes, rounded up."""
        flop = 2 * MODELS[self.model].parameters * (work.prefill_tokens + work.decodes)
        return -(-flop * 1_000_000_000 // (GPUS[self.gpu].flops * self.gpus))

    def memory_ns(self, work: Work) -> int:
        """Return the time the memory traffic takes, rounded up."""
        model = MODELS[self.model]
        read = model.parameters * model.weight_bytes + model.kv_bytes * work.context_tokens
        return -(-read * 1_000_000_000 // (GPUS[self.gpu].bandwidth * self.gpus))

    def lower_bound(self, requests: Iterable[Request], kv: KVCache | None = None) -> int:
        """Return a makespan in nanoseconds that no policy beats, if it serves all requests.

        The larger of two numbers is never below a weighted mean of them, and a mean of arithmetic
        and memory traffic adds up as `Affine` does. We take two: all arithmetic; and as little as
        makes it dearer to compute a context anew than to read it.

        Raises
        ------
        InputError
            If there is no request, or a subclass changes the price and not the bound.
        """
        _check_bound(self)
        requests = list_of(Request, "requests", requests)
        model, gpu = MODELS[self.model], GPUS[self.gpu]
        token = Fraction(2 * model.parameters * 10**12, gpu.flops * self.gpus)
        byte = Fraction(10**12, gpu.bandwidth * self.gpus)
        weights, read = model.parameters * model.weight_bytes * byte, model.kv_bytes * byte
        bounds = []
        for share in (Fraction(1), 2 * read / (token + 2 * read)):
            step, context = int((1 - share) * weights), int((1 - share) * read)
            prices = bound.Prices(step, 0, int(share * token), int(share * token), context, 0)
            bounds.append(bound.makespan_ns(requests, prices, _room(kv)))
        return max(bounds)


def _check_bound(prices: object) -> None:
    """Refuse a bound that a class inherits although it prices a step in its own way."""
    if shortcut(prices, "lower_bound") is None:
        raise InputError(
            f"{type(prices).__name__} changes how a step is priced, so the lower_bound that it "
            "inherits may be too high; give it a method lower_bound of its own"
        )


def _room(kv: KVCache | None) -> int | None:
    maybe(instance, KVCache, kv=kv)
    return None if kv is None or kv.blocks is None else kv.usable * kv.block_size


OPT_13B_A100 = Affine(
    base_ms=18.1,
    decode_step_ms=1.8,
    prefill_us=102,
    decode_us=38.5,
    context_ns=627,
    attention_ps=7120,
)
"""DistServe's published fit for OPT-13B on one A100 (Zhong et al., OSDI 2024).

In milliseconds: prefill ``18.1 + 0.102 * sum(len) + 7.12e-6 * sum(len ** 2)``; decode
``19.9 + 6.27e-4 * sum(context) + 0.0385 * batch`` for batches below 95. A step that does both
reads the weights once: it pays the decode's 19.9, not both constants. That last rule is ours.
"""

TOY = Affine(base_ms=0.2, prefill_us=40, decode_us=500)
"""System A: 0.2 ms per call, 0.04 ms per prompt token, 0.5 ms per decoding sequence (invented)."""

TOY_STATIC = Affine(base_ms=0.2, prefill_us=40, decode_us=31.25, padding_priced_once=True)
"""What system A charges its static mode: a sixteenth per sequence, one prompt per group."""

SLOTS = Affine(decode_step_ms=8, prefill_us=12, padding_priced_once=True)
"""System B: 8 ms per decode step whatever the batch, 12 us per prompt token (invented)."""

PRESETS: dict[str, Affine] = {"opt-13b-a100": OPT_13B_A100, "toy": TOY, "slots": SLOTS}
"""Price lists by the name they have on the command line."""
