"""Making a failing workload small, so that one can see why it fails.

Delta debugging (Zeller and Hildebrandt, 2002): leave out as many requests as possible while the
same rule still fails, then make those that are left shorter and simpler in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..request import NS_PER_MS, Request
from .assignment import Case, Failure

MOST_RUNS = 300
"""Runs after which the smallest workload found so far is taken."""

Test = Callable[[Case], Failure | None]
"""Runs a case and returns the failure that is looked for, or None."""


@dataclass(frozen=True)
class Shrunk:
    """A small case that still fails.

    Attributes
    ----------
    case : Case
    failure : Failure
    runs : int
        Runs that it took to find it.
    """

    case: Case
    failure: Failure
    runs: int


class _Enough(Exception):
    """The runs are used up."""


def shrink(case: Case, failure: Failure, test: Test, most_runs: int = MOST_RUNS) -> Shrunk:
    """Return the smallest case found that still fails in the same way.

    Parameters
    ----------
    case : Case
        One that fails.
    failure : Failure
        How it does.
    test : callable
        Runs a case; returns its failure if it is of the same kind.
    most_runs : int
    """
    search = _Search(case, failure, test, most_runs)
    try:
        while search.fewer() | search.simpler():
            pass
    except _Enough:
        pass
    return Shrunk(search.case, search.failure, search.runs)


class _Search:
    def __init__(self, case: Case, failure: Failure, test: Test, most_runs: int) -> None:
        self.case, self.failure = case, failure
        self.runs, self._test, self._most = 0, test, most_runs
        self._seen: set[tuple[Request, ...]] = set()

    def fails(self, requests: Sequence[Request]) -> bool:
        """Run a workload, and keep it if it fails too."""
        requests = tuple(sorted(requests, key=lambda r: r.arrival_ns))
        if not requests or requests in self._seen:
            return False
        self._seen.add(requests)
        if self.runs >= self._most:
            raise _Enough
        self.runs += 1
        case = replace(self.case, requests=requests)
        failure = self._test(case)
        if failure is None:
            return False
        self.case, self.failure = case, failure
        return True

    def fewer(self) -> bool:
        """Leave out requests: first halves, then ever smaller parts."""
        any_left_out, size = False, len(self.case.requests) // 2
        while size:
            start, found = 0, False
            while start < len(now := self.case.requests):
                if self.fails(now[:start] + now[start + size :]):
                    found = any_left_out = True
                else:
                    start += size
            if not found or size > len(self.case.requests):
                size //= 2
        return any_left_out

    def simpler(self) -> bool:
        """Make each request that is left shorter, and its arrival a round number."""
        now = self.case.requests
        first = now[0].arrival_ns
        found = self.fails([replace(r, arrival_ns=0) for r in now])
        found |= self.fails([replace(r, arrival_ns=r.arrival_ns - first) for r in now])
        for i in range(len(self.case.requests)):
            for name in ("prompt_len", "output_len", "arrival_ns"):
                old = getattr(self.case.requests[i], name)
                for value in _smaller(name, old):
                    now = self.case.requests
                    fields: dict[str, Any] = {name: value}
                    changed = replace(now[i], **fields)
                    # Where it stands in the order must stay the same, for `i` to name it.
                    if name == "arrival_ns" and not _in_order(now, i, value):
                        continue
                    if self.fails((*now[:i], changed, *now[i + 1 :])):
                        found = True
                        break
        return found


def _in_order(requests: Sequence[Request], i: int, arrival_ns: int) -> bool:
    before = requests[i - 1].arrival_ns if i else 0
    after = requests[i + 1].arrival_ns if i + 1 < len(requests) else arrival_ns
    return before <= arrival_ns <= after


def _smaller(name: str, value: int) -> Iterator[int]:
    """Yield simpler values, the simplest first."""
    if name == "arrival_ns":
        candidates = [value // unit * unit for unit in (100 * NS_PER_MS, 10 * NS_PER_MS, NS_PER_MS)]
    else:
        candidates = [1, 2, *(value // 8, value // 4, value // 2, value * 3 // 4, value - 1)]
    least = 0 if name == "arrival_ns" else 1
    yield from (v for v in dict.fromkeys(candidates) if least <= v < value)
