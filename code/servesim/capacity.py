"""Capacity: the highest arrival rate at which a server still keeps what was promised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .checks import function
from .errors import InputError, brief

MIN_TOLERANCE = 0.001


class Capacity(NamedTuple):
    """What a search found.

    Attributes
    ----------
    rate : float or None
        The highest rate of the grid at which the server keeps its promise, there and at every
        lower one. None if it fails at the lowest.
    fails_at : float or None
        The next rate of the grid, at which it fails. None if it still passes at the highest.
    tried : int
        Rates that were tried.
    """

    rate: float | None
    fails_at: float | None
    tried: int

    def __str__(self) -> str:
        """Say the rate, also where the grid ends before the answer."""
        if self.rate is None:
            return f"below {self.fails_at:.2f}"
        return f"{self.rate:.2f}" + " or more" * (self.fails_at is None)


def capacity(
    meets: Callable[[float], bool],
    *,
    low: float = 0.1,
    high: float = 100.0,
    tolerance: float = 0.05,
) -> Capacity:
    """Find the highest arrival rate at which a server keeps its promise.

    Rates are tried on a fixed grid, each higher than the one before by the factor
    ``1 + tolerance``, from the lowest up to the first that fails. This takes more runs than
    halving an interval, and needs no luck: whether a run keeps its limits need not be monotone
    in the rate. A server may fail at 3 requests/s and pass at 3.2, and halving would report one
    or the other by where it began. Here a rate counts only if every lower one passes as well.

    The grid holds 1 request/s and does not depend on `low` and `high`. So the answer is the same
    wherever the search starts, as long as it starts below the first failure.

    Parameters
    ----------
    meets : callable
        Tells for a rate, in requests per second, whether the promise is kept. Runs the
        simulator, as in ``lambda rate: simulate(poisson(400, rate), policy).p99_within(slo)``.
    low, high : float
        Between which rates to look, in requests per second.
    tolerance : float
        How much the rate that fails may be above the one returned, as a share of it.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    function(meets=meets)
    tried, passed = 0, None
    for rate in grid(low, high, tolerance):
        tried += 1
        if not meets(rate):
            return Capacity(passed, rate, tried)
        passed = rate
    return Capacity(passed, None, tried)


def grid(low: float, high: float, tolerance: float) -> Iterator[float]:
    """Yield the rates ``(1 + tolerance) ** k`` for whole k, from `low` to `high`.

    Raises
    ------
    InputError
        If a number is out of range, or there is no such rate.
    """
    for name, value, least, most in (
        ("low", low, 1e-6, 1e6),
        ("high", high, 1e-6, 1e6),
        ("tolerance", tolerance, MIN_TOLERANCE, 1.0),
    ):
        number = type(value) in (int, float)
        if not number or not least <= value <= most:
            raise InputError(
                f"capacity: {name} must be a number from {least:g} to {most:g}, not {brief(value)}"
            )
    factor = 1 + tolerance
    first = math.floor(math.log(low) / math.log(factor))
    last = math.ceil(math.log(high) / math.log(factor))
    # Eight digits: a logarithm or a power may differ in the last one between two machines.
    powers = (float(f"{factor**k:.8g}") for k in range(first, last + 1))
    rates = [rate for rate in powers if low <= rate <= high]
    if not rates:
        raise InputError(
            f"capacity: no rate of the grid lies from {low:g} to {high:g} requests/s; "
            f"move them apart, by more than the tolerance of {tolerance:g}"
        )
    yield from rates
