"""What became of each request, kept small: columns of whole numbers, one row per request.

A million requests take some hundred megabytes as objects and a tenth of it here. `Record` is one
row as an object, made when somebody asks for it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, NamedTuple, SupportsIndex, overload

from .request import Request
from .runs import Runs

Status = Literal["unfinished", "finished", "rejected"]
STATUSES: tuple[Status, ...] = ("unfinished", "finished", "rejected")
NEVER = -1
"""Stands in a column for a time that has not come."""


class TickLog:
    """The gaps between successive ticks: steps in which all decoding requests got a token.

    Kept as runs ``value, value + step, ...``. The weight of a tick is how many requests saw just
    this gap between two of their tokens.
    """

    def __init__(self) -> None:
        self._value, self._step = array("q"), array("q")
        self._upto, self._weight = array("q"), array("q")  # ticks up to the end of each run

    def extend(self, value: int, step: int, count: int, weight: int) -> None:
        """Add `count` ticks with gaps from `value` on, `step` apart; the same as one by one."""
        while count and self._upto and self._weight[-1] == weight:
            held = self._upto[-1] - (self._upto[-2] if len(self._upto) > 1 else 0)
            if held == 1:  # a run of one is continued by anything
                self._step[-1] = value - self._value[-1]
            elif value != self._value[-1] + self._step[-1] * held:
                break
            taken = count if step == self._step[-1] else 1
            self._upto[-1] += taken
            value, count = value + taken * step, count - taken
        if count:
            self._value.append(value)
            self._step.append(step if count > 1 else 0)
            self._upto.append((self._upto[-1] if self._upto else 0) + count)
            self._weight.append(weight)

    def runs(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield ``(value, step, count, weight)``."""
        before = 0
        for value, step, upto, weight in zip(
            self._value, self._step, self._upto, self._weight, strict=True
        ):
            yield value, step, upto - before, weight
            before = upto

    def copy_to(self, gaps: Runs, first: int, last: int) -> None:
        """Add the gaps of the ticks after `first`, up to and with `last`, to `gaps`."""
        i = bisect_right(self._upto, first)
        while first < last:
            before = self._upto[i - 1] if i else 0
            count = min(last, self._upto[i]) - first
            value = self._value[i] + self._step[i] * (first - before)
            gaps.extend(value, self._step[i], count)
            first += count
            i += 1


class Stint(NamedTuple):
    """A stretch of tokens: one gap of its own (or NEVER), then those of ticks in the log."""

    gap: int
    after: int
    upto: int


@dataclass(slots=True)
class Record:
    """What became of one request.

    Attributes
    ----------
    request : Request
    status : {"finished", "rejected", "unfinished"}
    first_scheduled_ns, first_token_ns, last_token_ns : int or None
        Clock times; None if it did not happen.
    output_tokens : int
        Tokens that count as output.
    preemptions : int
    gaps : Runs
        Times between successive tokens, in nanoseconds.
    """

    request: Request
    status: Status = "unfinished"
    first_scheduled_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    output_tokens: int = 0
    preemptions: int = 0
    gaps: Runs = field(default_factory=Runs)

    @property
    def ttft_ns(self) -> int | None:
        """Time to first token: first token - arrival, queueing included."""
        if self.first_token_ns is None:
            return None
        return self.first_token_ns - self.request.arrival_ns

    @property
    def e2e_ns(self) -> int | None:
        """End-to-end latency: last token - arrival; None unless finished."""
        if self.status != "finished" or self.last_token_ns is None:
            return None
        return self.last_token_ns - self.request.arrival_ns

    @property
    def tpot_ns(self) -> float | None:
        """Time per output token: (E2E - TTFT) / (tokens - 1); None for one token."""
        if self.e2e_ns is None or self.ttft_ns is None or self.output_tokens < 2:
            return None
        return (self.e2e_ns - self.ttft_ns) / (self.output_tokens - 1)

    def token_times_ns(self) -> Iterator[int]:
        """Yield the clock time of each token."""
        if self.first_token_ns is not None:
            yield from accumulate(self.gaps, initial=self.first_token_ns)


class Ledger(Sequence[Record]):
    """One row per request, in order of arrival. Reads like a list of records."""

    def __init__(self, log: TickLog) -> None:
        self.log = log
        self.id, self.arrival_ns = array("q"), array("q")
        self.prompt_len, self.output_len = array("q"), array("q")
        self.priority, self.status = array("q"), array("b")
        self.first_scheduled_ns = array("q")
        self.first_token_ns, self.last_token_ns = array("q"), array("q")
        self.output_tokens, self.preemptions = array("q"), array("q")
        self._gap, self._after, self._upto = array("q"), array("q"), array("q")
        self._more: dict[int, list[Stint]] = {}  # stints beyond the first, where there are any
        self._tenants: dict[int, str] = {}

    def open(self, r: Request) -> int:
        """Add a row for a request that has arrived; return its number."""
        row = len(self.id)
        self.id.append(r.id)
        self.arrival_ns.append(r.arrival_ns)
        self.prompt_len.append(r.prompt_len)
        self.output_len.append(r.output_len)
        self.priority.append(r.priority)
        self.status.append(0)
        for column in (self.first_scheduled_ns, self.first_token_ns, self.last_token_ns):
            column.append(NEVER)
        for column in (self.output_tokens, self.preemptions, self._after, self._upto):
            column.append(0)
        self._gap.append(NEVER)
        if r.tenant:
            self._tenants[row] = r.tenant
        return row

    def set_stints(self, row: int, stints: Sequence[Stint]) -> None:
        """Write down when the tokens of a request came."""
        if stints:
            self._gap[row], self._after[row], self._upto[row] = stints[0]
        if len(stints) > 1:
            self._more[row] = list(stints[1:])

    def set_status(self, row: int, status: Status) -> None:
        """Write down what became of a request."""
        self.status[row] = STATUSES.index(status)

    def rows(self, status: Status) -> list[int]:
        """Return the numbers of the rows with this status."""
        wanted = STATUSES.index(status)
        return [i for i, s in enumerate(self.status) if s == wanted]

    def ttft_ns(self) -> Iterator[int | None]:
        """Yield each request's TTFT."""
        for arrival, first in zip(self.arrival_ns, self.first_token_ns, strict=True):
            yield None if first == NEVER else first - arrival

    def e2e_ns(self) -> Iterator[int | None]:
        """Yield each request's end-to-end latency; None unless finished."""
        done = STATUSES.index("finished")
        for status, arrival, last in zip(
            self.status, self.arrival_ns, self.last_token_ns, strict=True
        ):
            yield last - arrival if status == done else None

    def tpot_ns(self) -> Iterator[float | None]:
        """Yield each request's TPOT; None unless finished, and for one token."""
        done = STATUSES.index("finished")
        for status, tokens, first, last in zip(
            self.status, self.output_tokens, self.first_token_ns, self.last_token_ns, strict=True
        ):
            yield (last - first) / (tokens - 1) if status == done and tokens > 1 else None

    def gap_counts(self) -> Iterator[tuple[int, int]]:
        """Yield the gaps between tokens of all requests: ``(gap in ns, how often)``."""
        for value, step, count, weight in self.log.runs():
            if not weight:
                continue
            if not step:
                yield value, count * weight
                continue
            for i in range(count):
                yield value + i * step, weight
        yield from ((gap, 1) for gap in self._gap if gap != NEVER)
        for stints in self._more.values():
            yield from ((s.gap, 1) for s in stints if s.gap != NEVER)

    def request(self, row: int) -> Request:
        """Return the request of a row."""
        return Request(
            self.id[row],
            self.arrival_ns[row],
            self.prompt_len[row],
            self.output_len[row],
            self.priority[row],
            self._tenants.get(row, ""),
        )

    def __len__(self) -> int:
        return len(self.id)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Record | list[Record]:
        rows = range(len(self.id))[index]
        if isinstance(rows, range):
            return [self._record(row) for row in rows]
        return self._record(rows)

    def _record(self, row: int) -> Record:
        gaps = Runs()
        first = Stint(self._gap[row], self._after[row], self._upto[row])
        for gap, after, upto in (first, *self._more.get(row, ())):
            if gap != NEVER:
                gaps.append(gap)
            self.log.copy_to(gaps, after, upto)
        first_scheduled, first_token, last_token = (
            None if column[row] == NEVER else column[row]
            for column in (self.first_scheduled_ns, self.first_token_ns, self.last_token_ns)
        )
        return Record(
            self.request(row),
            STATUSES[self.status[row]],
            first_scheduled,
            first_token,
            last_token,
            self.output_tokens[row],
            self.preemptions[row],
            gaps,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
