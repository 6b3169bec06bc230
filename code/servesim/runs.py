"""Long lists of whole numbers kept short: as runs of equal spacing."""

from __future__ import annotations

from collections.abc import Iterator


class Runs:
    """A sequence of integers stored as ``(value, step, count)`` runs.

    The numbers of a run are ``value, value + step, ...``, `count` of them. Two sequences are
    equal if and only if their runs are: a run always takes in all that continues it.

    The gaps between a request's tokens are such a sequence: equal prices give one run.
    """

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[list[int]] = []

    def append(self, value: int) -> None:
        """Add one number."""
        if self.runs:
            last = self.runs[-1]
            if last[2] == 1:
                last[1:] = value - last[0], 2
                return
            if value == last[0] + last[1] * last[2]:
                last[2] += 1
                return
        self.runs.append([value, 0, 1])

    def extend(self, value: int, step: int, count: int) -> None:
        """Add `count` numbers from `value` on, `step` apart; the same as adding each."""
        while count:
            if self.runs:
                last = self.runs[-1]
                if last[1] == step and value == last[0] + step * last[2]:
                    last[2] += count
                    return
            self.append(value)
            value += step
            count -= 1

    def counts(self) -> Iterator[tuple[int, int]]:
        """Yield ``(value, how often)``; a value may come more than once."""
        for value, step, count in self.runs:
            if step == 0:
                yield value, count
            else:
                for i in range(count):
                    yield value + i * step, 1

    def total(self) -> int:
        """Return the sum of all numbers."""
        return sum(n * v + s * (n * (n - 1) // 2) for v, s, n in self.runs)

    def __iter__(self) -> Iterator[int]:
        for value, step, count in self.runs:
            for i in range(count):
                yield value + i * step

    def __len__(self) -> int:
        return sum(count for _, _, count in self.runs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self.runs == other.runs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Runs({', '.join(map(str, self.runs))})"
