"""From token times to TTFT, TPOT, ITL, E2E, throughput, attainment and goodput.

All times inside are whole nanoseconds; milliseconds and seconds appear only in what is shown.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .checks import MOST, instance, is_number, iterable, maybe, whole_from
from .errors import InputError, brief
from .ledger import Ledger, Status
from .ledger import Record as Record
from .request import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from .kv import KVCache
    from .trace import StepRecord

Rule = Literal["linear", "mlperf", "toy"]
PERCENTILE_RULES: tuple[Rule, ...] = ("linear", "mlperf", "toy")


class Distribution:
    """A set of measured values, each with how often it was seen.

    Parameters
    ----------
    counts : iterable of (value, int)
        Values and how often; a value may come more than once.
    scale : int
        Divide by this when a figure is read: 1,000,000 shows nanoseconds as milliseconds.
    """

    def __init__(self, counts: Iterable[tuple[float, int]], scale: int = 1) -> None:
        whole_from(1, scale=scale)
        merged: dict[float, int] = {}
        with _numbers_only("counts"):
            for value, count in iterable("counts", counts, "pairs: a value, and how often"):
                merged[value] = merged.get(value, 0) + count
            self._values: Sequence[float] = sorted(merged)
            times = [merged[v] for v in self._values]
            self._upto: Sequence[int] = list(accumulate(times))
            self._sum = _exact_sum(list(map(mul, self._values, times)))
            _check_numbers(self._sum, self._values, times)
        self._scale = scale

    @classmethod
    def of(cls, values: Iterable[float], scale: int = 1) -> Distribution:
        """Build a distribution from single values."""
        self = cls((), scale)
        with _numbers_only("values"):
            ordered = sorted(iterable("values", values, "numbers"))
            self._sum = _exact_sum(ordered)
            self._values = _column(ordered)
            _check_numbers(self._sum, self._values)
        self._upto = range(1, len(ordered) + 1)
        return self

    def __len__(self) -> int:
        return self._upto[-1] if self._upto else 0

    @property
    def mean(self) -> float | None:
        """Arithmetic mean; None without values."""
        return self._sum / len(self) / self._scale if self._upto else None

    @property
    def max(self) -> float | None:
        """Largest value; None without values."""
        return self._values[-1] / self._scale if self._values else None

    @property
    def min(self) -> float | None:
        """Smallest value; None without values."""
        return self._values[0] / self._scale if self._values else None

    def percentile(self, p: float, rule: Rule = "linear") -> float | None:
        """Return the value that `p` percent of the values do not exceed.

        Parameters
        ----------
        p : float
            From 0 to 100.
        rule : {"linear", "mlperf", "toy"}
            "linear" interpolates between neighbors (NumPy's default, used by vLLM's
            benchmark). "mlperf" is ``sorted(x)[int(n * p)]`` (the last value if that is one too
            far), "toy" is ``sorted(x)[int(n * p) - 1]``, as in system A.

        Raises
        ------
        InputError
            If `p` is out of range or the rule is not known.
        """
        if not is_number(p) or not 0 <= p <= 100:
            raise InputError(f"a percentile lies between 0 and 100, not {brief(p)}")
        if rule not in PERCENTILE_RULES:
            known = ", ".join(PERCENTILE_RULES)
            raise InputError(f"unknown percentile rule {brief(rule)}; known are {known}")
        n = len(self)
        if not n:
            return None
        if rule == "linear":
            rank = (n - 1) * p / 100
            low = math.floor(rank)
            below, above = self._at(low), self._at(min(low + 1, n - 1))
            return (below + (above - below) * (rank - low)) / self._scale
        if rule == "mlperf":
            return self._at(min(n - 1, int(p / 100 * n))) / self._scale
        return self._at((int(p / 100 * n) - 1) % n) / self._scale

    def _at(self, index: int) -> float:
        """Return what ``sorted(all values)[index]`` would be."""
        return self._values[bisect_right(self._upto, index)]

    def row(self) -> dict[str, float | None]:
        """Return mean, p50, p90, p95, p99 and max."""
        levels = {f"p{p}": self.percentile(p) for p in (50, 90, 95, 99)}
        return {"mean": self.mean, **levels, "max": self.max}


@contextmanager
def _numbers_only(name: str) -> Iterator[None]:
    """Say of an option that it holds what cannot be added up or put in order."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{name} must hold numbers only (and in counts, how often each was seen)"
        ) from None


def _check_numbers(total: float, values: Sequence[float], counts: Collection[int] = ()) -> None:
    """Refuse nan, which has no place in an order; numbers that no float can show; odd counts."""
    if math.isnan(total) or not _all_whole(counts) or min(counts, default=0) < 0:
        raise ValueError
    for number in (total, *values[:1], *values[-1:]):
        float(number)


def _exact_sum(values: Collection[float]) -> float:
    """Sum up so that the order, and Python's version, do not matter."""
    return sum(values) if _all_whole(values) else math.fsum(values)


def _column(values: list[float]) -> Sequence[float]:
    """Return whole numbers as machine numbers, if they are: a million of them take 8 MB."""
    try:
        return array("q", values)
    except (TypeError, OverflowError):
        return values


def _all_whole(values: Collection[float]) -> bool:
    return set(map(type, values)) <= {int}


@dataclass(frozen=True, slots=True)
class SLO:
    """A service level objective: limits that latencies have to keep, in milliseconds.

    Two notions use it. `kept_by` asks it of one request (attainment and goodput count those);
    `Result.p99_within` asks it of the P99 over the run, as MLPerf does.

    Raises
    ------
    InputError
        If a limit is not a positive number.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("ttft_ms", self.ttft_ms), ("tpot_ms", self.tpot_ms)):
            if value is None:
                continue
            if not (is_number(value) and 0 < value <= MOST):
                raise InputError(
                    f"SLO: {name} must be a positive number of ms up to {MOST:.0e}, "
                    f"not {brief(value)}"
                )

    def kept_by(self, record: Record) -> bool:
        """Tell whether a request was finished and kept every limit."""
        return record.status == "finished" and self.kept(record.ttft_ns, record.tpot_ns)

    def kept(self, ttft_ns: float | None, tpot_ns: float | None) -> bool:
        """Tell whether latencies keep every limit; one that does not exist keeps its own."""
        ttft, tpot = self.ttft_ms, self.tpot_ms
        return (ttft_ns is None or ttft is None or ttft_ns <= ttft * NS_PER_MS) and (
            tpot_ns is None or tpot is None or tpot_ns <= tpot * NS_PER_MS
        )


SLO_PRESETS = {
    "llama-2-70b": SLO(2000, 200),
    "llama-2-70b-interactive": SLO(450, 40),
    "llama-3.1-8b": SLO(2000, 100),
    "llama-3.1-8b-interactive": SLO(500, 30),
    "llama-3.1-405b": SLO(6000, 175),
    "llama-3.1-405b-interactive": SLO(4500, 80),
}
"""P99 limits of MLPerf Inference's server scenario (MLCommons rules)."""


class KVSplit(NamedTuple):
    """What fills the KV cache, in percent of it; the five parts add up to 100.

    Attributes
    ----------
    tokens : float
        Token states: keys and values of tokens that were computed.
    later : float
        Reserved for tokens that will still come. Does not exist on demand.
    unused : float
        Reserved, and never needed: the reservation was longer than the output.
    rounding : float
        What rounding up adds: the rest of the last block or, in a contiguous cache, of a chunk.
    free : float
        Held by nobody: in holes that are too small for the next one, or not asked for.
    """

    tokens: float
    later: float
    unused: float
    rounding: float
    free: float


@dataclass
class Result:
    """What a run gave: one record per request, and totals.

    Attributes
    ----------
    policy : str
        The policy with its options.
    told_output_length : bool
        True if the policy could use the true output lengths, which no real scheduler knows.
    records : Ledger
        One `Record` per request, in order of arrival. Reads like a list.
    outcome : {"completed", "stalled", "max_steps"}
    start_ns, end_ns : int
        First arrival, and the clock when the run ended.
    steps : int
        Steps (forward calls) taken.
    engine_iterations : int
        Times the policy was asked; fewer than steps where equal steps were taken at once.
    preemptions : int
    kv : KVCache
    peak_blocks : int
        Most KV blocks held at once.
    block_ns, token_ns, promised_ns, claimed_ns, running_ns, system_ns : int
        Integrals over time of: blocks held; tokens in the cache; tokens that those in the batch
        will have in the cache at their end; tokens that they reserved room for when they joined
        (0 on demand); requests in the batch; requests in the system (waiting or running).
    step_records : list of StepRecord
        Every step, if `record_steps` was on.
    token_budget : int or None
        Tokens that a step may hold, if the policy has such a limit.
    """

    policy: str
    told_output_length: bool
    records: Ledger
    outcome: Literal["completed", "stalled", "max_steps"]
    start_ns: int
    end_ns: int
    steps: int
    engine_iterations: int
    preemptions: int
    kv: KVCache
    peak_blocks: int
    block_ns: int
    token_ns: int
    promised_ns: int
    claimed_ns: int
    running_ns: int
    system_ns: int
    step_records: list[StepRecord] = field(default_factory=list)
    token_budget: int | None = None

    def count(self, status: Status) -> int:
        """Return how many requests are finished, rejected or unfinished."""
        return len(self.records.rows(status))

    @cached_property
    def finished(self) -> list[Record]:
        """Records of the requests that were served to the end."""
        return [self.records[i] for i in self.records.rows("finished")]

    @cached_property
    def rejected(self) -> list[Record]:
        """Records of the requests that were turned away, by the policy or as too large to fit."""
        return [self.records[i] for i in self.records.rows("rejected")]

    @cached_property
    def output_tokens(self) -> int:
        """Counted output tokens of all requests."""
        return sum(self.records.column("output_tokens"))

    @cached_property
    def makespan_ns(self) -> int:
        """From the first arrival to the last token; 0 if there is no token."""
        return max(0, max(self.records.column("last_token_ns"), default=0) - self.start_ns)

    @property
    def makespan_s(self) -> float:
        """From the first arrival to the last token, in seconds."""
        return self.makespan_ns / NS_PER_S

    @cached_property
    def ttft_ms(self) -> Distribution:
        """Time to first token, in milliseconds."""
        return Distribution.of(_known(self.records.ttft_ns()), NS_PER_MS)

    @cached_property
    def tpot_ms(self) -> Distribution:
        """Time per output token, in milliseconds."""
        return Distribution.of(_known(self.records.tpot_ns()), NS_PER_MS)

    @cached_property
    def itl_ms(self) -> Distribution:
        """Inter-token latency, pooled over all requests, in milliseconds."""
        return Distribution(self.records.gap_counts(), NS_PER_MS)

    @cached_property
    def e2e_ms(self) -> Distribution:
        """End-to-end latency, in milliseconds."""
        return Distribution.of(_known(self.records.e2e_ns()), NS_PER_MS)

    def per_second(self, amount: float) -> float | None:
        """Divide an amount by the makespan; None if no time passed."""
        return amount / self.makespan_s if self.makespan_ns > 0 else None

    @property
    def throughput_tok_s(self) -> float | None:
        """Output tokens per second of makespan."""
        return self.per_second(self.output_tokens)

    @property
    def throughput_req_s(self) -> float | None:
        """Finished requests per second of makespan."""
        return self.per_second(self.count("finished"))

    @property
    def total_tok_s(self) -> float | None:
        """Prompt and output tokens of finished requests per second of makespan."""
        prompts, outputs = map(self.records.column, ("prompt_len", "output_tokens"))
        return self.per_second(sum(prompts[i] + outputs[i] for i in self.records.rows("finished")))

    def by_tenant(self) -> dict[str, list[Record]]:
        """Return the records of each tenant, in order of arrival."""
        out: dict[str, list[Record]] = {}
        for record in self.records:
            out.setdefault(record.request.tenant, []).append(record)
        return out

    def attainment(self, slo: SLO) -> float:
        """Return the share of all requests, rejected ones included, that keep every limit."""
        return self._kept(slo) / len(self.records)

    def goodput_req_s(self, slo: SLO) -> float | None:
        """Return the requests per second that keep every limit."""
        return self.per_second(self._kept(slo))

    def _kept(self, slo: SLO) -> int:
        instance(SLO, slo=slo)
        rows = zip(
            self.records.e2e_ns(), self.records.ttft_ns(), self.records.tpot_ns(), strict=True
        )
        return sum(e2e is not None and slo.kept(ttft, tpot) for e2e, ttft, tpot in rows)

    def p99_within(self, slo: SLO) -> bool:
        """Tell whether the P99 of TTFT and of TPOT keep the limits, as MLPerf asks.

        Requests that were turned away count as later than any limit. (The percentiles
        themselves are over those that were served.)
        """
        instance(SLO, slo=slo)
        late = [math.inf] * self.count("rejected")
        pairs = ((self.records.ttft_ns(), slo.ttft_ms), (self.records.tpot_ns(), slo.tpot_ms))
        for measured, limit in pairs:
            times = Distribution.of((*_known(measured), *late), NS_PER_MS)
            value = times.percentile(99, "mlperf")
            if limit is not None and value is not None and value > limit:
                return False
        return True

    @property
    def mean_running(self) -> float:
        """Requests in the batch, averaged over time."""
        return self.running_ns / span if (span := self.end_ns - self.start_ns) else 0.0

    @property
    def mean_blocks(self) -> float:
        """KV blocks held, averaged over time."""
        return self.block_ns / span if (span := self.end_ns - self.start_ns) else 0.0

    def kv_split(self, since: Result | None = None) -> KVSplit:
        """Return what filled the KV cache, averaged over time.

        Parameters
        ----------
        since : Result, optional
            An earlier result of the same run (`Engine.result`): the average is over the time
            from there on. Without it, from the first arrival.

        Raises
        ------
        InputError
            If the cache has no limit, or no time has passed.
        """
        maybe(instance, Result, since=since)
        start = self.start_ns if since is None else since.end_ns
        if self.kv.blocks is None or self.end_ns <= start:
            raise InputError("kv_split needs a KV cache with a limit, and some time to average")
        blocks, tokens, promised, claimed = (
            getattr(self, name) - (getattr(since, name) if since else 0)
            for name in ("block_ns", "token_ns", "promised_ns", "claimed_ns")
        )
        whole = self.kv.usable * self.kv.block_size * (self.end_ns - start)
        held = blocks * self.kv.block_size
        # On demand nothing is claimed; a claim that was too small is bought up to the need.
        later = min(promised, held) - tokens if claimed else 0
        unused = max(0, min(claimed, held) - tokens - later)
        parts = (tokens, later, unused, held - tokens - later - unused, whole - held)
        return KVSplit(*(100 * part / whole for part in parts))

    def summary(self, slo: SLO | None = None) -> dict[str, Any]:
        """Return one row of figures, ready for JSON.

        Parameters
        ----------
        slo : SLO, optional
            Without it, goodput and attainment are None.
        """
        maybe(instance, SLO, slo=slo)
        return {
            "policy": self.policy,
            "told_output_length": self.told_output_length,
            "requests": len(self.records),
            "finished": self.count("finished"),
            "rejected": self.count("rejected"),
            "makespan_s": self.makespan_s,
            "output_tokens": self.output_tokens,
            "throughput_tok_s": self.throughput_tok_s,
            "ttft_ms": self.ttft_ms.row(),
            "tpot_ms": self.tpot_ms.row(),
            "itl_ms": self.itl_ms.row(),
            "e2e_ms": self.e2e_ms.row(),
            "goodput_req_s": None if slo is None else self.goodput_req_s(slo),
            "attainment": None if slo is None else self.attainment(slo),
            "p99_within_slo": None if slo is None else self.p99_within(slo),
            "preemptions": self.preemptions,
            "steps": self.steps,
            "engine_iterations": self.engine_iterations,
            "mean_running": self.mean_running,
            "kv": {
                "blocks": self.kv.blocks,
                "block_size": self.kv.block_size,
                "peak_blocks": self.peak_blocks,
                "mean_blocks": self.mean_blocks,
            },
        }


MOST_AMOUNT = 1e300


def jain_index(amounts: Iterable[float]) -> float:
    """Return how equal amounts are: 1 if all are the same, 1/n if one of n has everything.

    ``sum(x) ** 2 / (n * sum(x ** 2))`` (Jain, Chiu and Hawe, 1984). If nobody has anything, all
    have the same.

    Parameters
    ----------
    amounts : iterable of float
        What each one got, in any unit, 0 or more.

    Raises
    ------
    InputError
        If there are none, or one is negative or not a number.
    """
    values = list(iterable("amounts", amounts, "numbers"))
    if not values or not all(isinstance(v, int | float) and 0 <= v <= MOST_AMOUNT for v in values):
        raise InputError(
            f"jain_index: give one or more amounts, each from 0 to {MOST_AMOUNT:g}, "
            f"not {brief(values)}"
        )
    most = max(values)
    if not most:
        return 1.0
    shares = [v / most for v in values]  # so that no square is too large or too small
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(v * v for v in shares))


def _known(values: Iterable[float | None]) -> Iterator[float]:
    return (v for v in values if v is not None)
