"""Claims against evidence: tolerances, verdicts, confidence intervals, what a trace is like.

A tolerance is stated before the comparison. A verdict then says whether it was kept, and names
what missed it: the text of the book cannot say anything else than the numbers do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log10
from typing import Any

from .checks import MOST, list_of, number_from, text, whole_from
from .errors import InputError
from .metrics import Distribution
from .request import NS_PER_S, Request

LEAST = 1e-9
"""A published figure must be above it for a share of it to mean anything."""

# -- ours beside a published figure ---------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """One figure of ours beside a published one.

    Parameters
    ----------
    what : str
    ours : float
    published : float or (float, float)
        A number, or the two ends of a published range.
    tolerance : float
        How far we may be from it: in the figure's own unit if `unit` is given, as a share of the
        published figure if not.
    unit : str
        Such as ``"points"``, for a tolerance that is not a share.

    Raises
    ------
    InputError
        If the tolerance is negative, or a share of a figure that is not positive.
    """

    what: str
    ours: float
    published: float | tuple[float, float]
    tolerance: float
    unit: str = ""

    def __post_init__(self) -> None:
        text(what=self.what, unit=self.unit)
        if len(self._range) != 2:
            raise InputError(f"{self.what}: published is a number or a pair: {self.published!r}")
        for end in self._range:
            number_from(-MOST, published=end)
        number_from(-MOST, ours=self.ours)
        number_from(0, tolerance=self.tolerance)
        if not self.unit and not min(self._range) > LEAST:
            raise InputError(f"{self.what}: a share of {self.published!r} is no tolerance; give it")

    @property
    def _range(self) -> tuple[float, float]:
        p = self.published
        return p if isinstance(p, tuple) else (p, p)

    @property
    def difference(self) -> float:
        """Ours minus the published figure; from the nearer end of a range, 0 inside it."""
        low, high = self._range
        return self.ours - min(max(self.ours, low), high)

    @property
    def met(self) -> bool:
        """Whether the difference is within the tolerance."""
        nearer = min(max(self.ours, self._range[0]), self._range[1])
        return abs(self.difference) <= self.tolerance * (1 if self.unit else nearer)

    def row(self) -> dict[str, object]:
        """Return ours, the published figure, difference, tolerance and verdict for a table."""
        low, high = self._range
        if self.unit:
            difference = f"{_short(self.difference, '+')} {self.unit}"
            tolerance = f"{_short(self.tolerance)} {self.unit}"
        else:
            nearer = min(max(self.ours, low), high)
            difference = f"{_short(100 * self.difference / nearer, '+', 0)} %"
            tolerance = f"{100 * self.tolerance:.0f} %"
        published = _short(low) if low == high else f"{_short(low)} to {_short(high)}"
        return {
            "figure": self.what,
            "ours": _short(self.ours),
            "published": published,
            "difference": "in range" if low < high and not self.difference else difference,
            "tolerance": tolerance,
            "verdict": "met" if self.met else "MISSED",
        }


def _short(value: float, sign: str = "", most: int = 2) -> str:
    """Format a figure with about three digits, `most` of them after the point."""
    if isinstance(value, int):
        return format(value, f"{sign}d")
    digits = 2 if value == 0 else max(0, 2 - int(log10(abs(value)) // 1))
    digits = min(digits, most)
    return format(round(value, digits) + 0.0, f"{sign}.{digits}f")  # no minus zero


def verdict(checks: Sequence[Check], named: int = 3) -> str:
    """Return the sentence that a comparison has to begin with.

    Parameters
    ----------
    checks : sequence of Check
    named : int
        How many of the missed figures are named at most.

    Raises
    ------
    InputError
        If there is nothing to judge.
    """
    checks = list_of(Check, "checks", checks)
    whole_from(0, named=named)
    if not checks:
        raise InputError("verdict needs at least one check")
    missed = [c.what for c in checks if not c.met]
    if not missed and len(checks) == 1:
        return "The figure is within its tolerance."
    if not missed:
        many = "Both" if len(checks) == 2 else f"All {len(checks)}"
        return f"{many} figures are within their tolerance."
    words = missed if len(missed) <= named else [*missed[:named], f"{len(missed) - named} more"]
    return (
        f"We miss {len(missed)} of {len(checks)} figures by more than their tolerance: "
        f"{'; '.join(words)}."
    )


# -- theory ---------------------------------------------------------------------------------------

STUDENT_T = {
    (8, 95.0): 2.365,
    (10, 99.0): 3.250,
    (10, 99.9): 4.781,
    (20, 99.0): 2.861,
    (20, 99.9): 3.883,
}
"""Student's t by number of runs and confidence level in percent (two-sided)."""


def interval(values: Sequence[float], level: float = 99.0) -> tuple[float, float]:
    """Return the mean of independent runs, and half the width of its confidence interval.

    Parameters
    ----------
    values : sequence of float
        One per run.
    level : float
        In percent. `STUDENT_T` has the levels and numbers of runs that are known.

    Raises
    ------
    InputError
        If there is no t for this number of runs and this level.
    """
    values = list_of((int, float), "values", values)
    number_from(0, level=level)
    n = len(values)
    if (n, level) not in STUDENT_T:
        raise InputError(f"interval knows {sorted(STUDENT_T)} as (runs, level), not {(n, level)}")
    mean = sum(values) / n
    variance = sum((v - mean) ** 2 for v in values) / (n - 1)
    return mean, STUDENT_T[n, level] * float((variance / n) ** 0.5)


def mean_wait_s(rate: float, services_s: Sequence[float]) -> float:
    """Return the mean wait of an M/G/1 queue by the Pollaczek-Khinchine formula.

    Parameters
    ----------
    rate : float
        Arrivals per second.
    services_s : sequence of float
        Service times, each equally likely.

    Raises
    ------
    InputError
        If the load is 1 or more: there is no mean wait.
    """
    number_from(0, rate=rate)
    services_s = list_of((int, float), "services_s", services_s)
    number_from(0, **{f"services_s[{i}]": s for i, s in enumerate(services_s)})
    if not services_s:
        raise InputError("mean_wait_s needs services_s, one service time or more")
    mean = sum(services_s) / len(services_s)
    square = sum(s * s for s in services_s) / len(services_s)
    if rate * mean >= 1:
        raise InputError(f"a load of {rate * mean:.2f} has no mean wait: it must be below 1")
    return rate * square / (2 * (1 - rate * mean))


# -- what a trace is like -------------------------------------------------------------------------

PERCENTS = (10, 50, 90, 99)


def describe(requests: Sequence[Request], window_s: float = 10.0) -> dict[str, Any]:
    """Return the figures by which a generator is judged against a trace.

    Parameters
    ----------
    requests : sequence of Request
        In order of arrival, at least three, not all at once.
    window_s : float
        For the dispersion.

    Returns
    -------
    dict
        ``rows``; ``rate`` in requests/s; ``gap_cv``, the coefficient of variation of the gaps;
        ``dispersion``, variance over mean of the arrivals in a window (1 for Poisson);
        ``correlation`` of prompt and output length; and for ``prompt`` and ``output`` the mean and
        the percentiles `PERCENTS`, in tokens.
    """
    requests = list_of(Request, "requests", requests)
    if len(requests) < 3 or requests[0].arrival_ns == requests[-1].arrival_ns:
        raise InputError("describe needs three requests or more, not all of them at once")
    number_from(1e-9, window_s=window_s)
    times = [r.arrival_ns for r in requests]
    gaps = [(b - a) / NS_PER_S for a, b in pairwise(times)]
    seen = Counter(int((t - times[0]) / NS_PER_S // window_s) for t in times)
    whole = int((times[-1] - times[0]) / NS_PER_S // window_s)  # the last, cut one is left out
    mean, variance = _moments([seen[i] for i in range(max(1, whole))])
    gap_mean, gap_variance = _moments(gaps)
    prompts, outputs = ([r.prompt_len for r in requests], [r.output_len for r in requests])
    told = {"rows": len(requests), "rate": 1 / gap_mean, "gap_cv": gap_variance**0.5 / gap_mean}
    told |= {"dispersion": variance / mean, "correlation": _correlation(prompts, outputs)}
    for side, lengths in (("prompt", prompts), ("output", outputs)):
        spread = Distribution.of(lengths)
        told[side] = {"mean": spread.mean, **{f"p{p}": spread.percentile(p) for p in PERCENTS}}
    return told


def _moments(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, sum((v - mean) ** 2 for v in values) / len(values)


def _correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    (mx, vx), (my, vy) = _moments(xs), _moments(ys)
    if not vx or not vy:
        return 0.0
    both = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / len(xs)
    return both / float((vx * vy) ** 0.5)
