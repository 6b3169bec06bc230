"""Steps in a row in which the same requests decode, and what adds up over them.

The engine takes such a stretch at once. `Even` is one whose price grows by the same amount from
step to step: its sums are closed forms, as quick for a thousand steps as for one. `Uneven` has
a list of prices, and sums them up.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from .ledger import TickLog


class Even:
    """So many steps; step `j` (from 0) takes ``price + j * growth`` ns.

    Attributes
    ----------
    span : int
        Nanoseconds in all.
    """

    __slots__ = ("growth", "price", "span", "steps")

    def __init__(self, steps: int, price: int, growth: int = 0) -> None:
        self.steps, self.price, self.growth = steps, price, growth
        self.span = price * steps
        if growth:
            self.span += growth * (steps * (steps - 1) // 2)

    @classmethod
    def until(cls, gap: int, price: int, growth: int, most: int) -> Even:
        """Return as many steps as fill `gap` ns (1 or more), at most `most`."""
        if not growth:
            steps = -(-gap // price) if price else most
            return cls(steps if steps < most else most, price)
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            if price * middle + growth * (middle * (middle - 1) // 2) < gap:
                low = middle + 1
            else:
                high = middle
        return cls(low, price, growth)

    def left_after_ends(self) -> int:
        """Return the sum, over the steps, of the time that is left when they end."""
        # With i steps left it is the sum of the last i prices: each price counts as often as
        # there are steps before it, price i just i times.
        pairs = self.steps * (self.steps - 1) // 2
        left = self.price * pairs
        if self.growth:
            left += self.growth * (pairs * (2 * self.steps - 1) // 3)
        return left

    def left_from(self, first: int, every: int) -> tuple[int, int]:
        """Return, of the steps ``first, first + every, ...``, how many there are.

        And the sum, over them, of the time that is left when they begin.
        """
        times = (self.steps - 1 - first) // every + 1
        # The sums of their numbers j, and of j * j:
        pairs = times * (times - 1) // 2
        sum_j = first * times + every * pairs
        begins = self.price * sum_j
        if self.growth:
            squares = pairs * (2 * times - 1) // 3
            sum_jj = first * (first * times + 2 * every * pairs) + every * every * squares
            begins += self.growth * ((sum_jj - sum_j) // 2)
        return times, times * self.span - begins

    def write_gaps(self, log: TickLog, after: int, weight: int) -> None:
        """Write the steps to a log, but for the first `after`."""
        price = self.price + after * self.growth
        log.extend(price, self.growth, self.steps - after, weight)


class Uneven:
    """Steps with these prices: `Even` in everything else."""

    __slots__ = ("_ends", "_prices", "price", "span", "steps")

    def __init__(self, prices: list[int]) -> None:
        self._prices, self._ends = prices, list(accumulate(prices))
        self.price, self.span, self.steps = prices[0], self._ends[-1], len(prices)

    @classmethod
    def until(cls, gap: int, prices: list[int]) -> Uneven:
        """Return as many of the steps as fill `gap` ns, at least one."""
        return cls(prices[: bisect_left(list(accumulate(prices)), gap) + 1])

    def left_after_ends(self) -> int:
        """Return the sum, over the steps, of the time that is left when they end."""
        return self.steps * self.span - sum(self._ends)

    def left_from(self, first: int, every: int) -> tuple[int, int]:
        """Return, of the steps ``first, first + every, ...``, how many there are.

        And the sum, over them, of the time that is left when they begin.
        """
        ends, prices = self._ends[first::every], self._prices[first::every]
        return len(ends), len(ends) * self.span - sum(ends) + sum(prices)

    def write_gaps(self, log: TickLog, after: int, weight: int) -> None:
        """Write the steps to a log, but for the first `after`."""
        log.extend_each(self._prices[after:], weight)
