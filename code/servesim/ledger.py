"""What became of each request, kept small: columns of whole numbers, one row per request.

A million requests take some hundred megabytes as objects and a tenth of it here. `Record` is one
row as an object, made when somebody asks for it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from struct import Struct
from typing import Literal, SupportsIndex, overload

from .request import Request
from .runs import Runs

Status = Literal["unfinished", "finished", "rejected"]
STATUSES: tuple[Status, ...] = ("unfinished", "finished", "rejected")
_CODE = {status: code for code, status in enumerate(STATUSES)}
NEVER = -1
"""Stands in a column for a time that has not come."""


class TickLog:
    """The gaps between successive ticks: steps in which all decoding requests got a token.

    Kept as runs ``value, value + step, ...``. The weight of a tick is how many requests saw just
    this gap between two of their tokens.
    """

    __slots__ = ("_last", "_step", "_upto", "_value", "_weight")

    def __init__(self) -> None:
        self._value, self._step, self._weight = array("q"), array("q"), array("q")
        self._upto = array("q")  # ticks up to the end of each run
        self._last = [0, 0, 0, NEVER]  # the run that still grows: value, step, count, weight

    def extend(self, value: int, step: int, count: int, weight: int) -> None:
        """Add `count` ticks with gaps from `value` on, `step` apart; the same as one by one."""
        first, spacing, held, same = last = self._last
        while count and weight == same:
            if held == 1:  # a run of one is continued by anything
                spacing = last[1] = value - first
            elif value != first + spacing * held:
                break
            taken = count if step == spacing else 1
            held = last[2] = held + taken
            value += taken * step
            count -= taken
        if count:
            self._close()
            self._last = [value, step if count > 1 else 0, count, weight]

    def extend_each(self, values: Iterable[int], weight: int) -> None:
        """Add a tick with each of these gaps; the same as `extend` with one at a time."""
        last = self._last
        first, step, held, same = last
        if weight != same:
            held = 0
        for value in values:
            if held == 1:  # a run of one is continued by anything
                step = last[1] = value - first
            elif not held or value != first + step * held:
                if held:
                    last[2] = held
                self._close()
                last = self._last = [value, 0, 1, weight]
                first, held = value, 0
            held += 1
        if held:
            last[2] = held

    def _close(self) -> None:
        """Put the run that still grows with the others; it grows no more."""
        value, step, count, weight = self._last
        if count:
            self._value.append(value)
            self._step.append(step)
            self._weight.append(weight)
            self._upto.append(count + (self._upto[-1] if self._upto else 0))
            self._last[2:] = 0, NEVER

    def runs(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield ``(value, step, count, weight)``."""
        self._close()
        before = 0
        for value, step, upto, weight in zip(
            self._value, self._step, self._upto, self._weight, strict=True
        ):
            yield value, step, upto - before, weight
            before = upto

    def copy_to(self, gaps: Runs, first: int, last: int) -> None:
        """Add the gaps of the ticks after `first`, up to and with `last`, to `gaps`."""
        self._close()
        i = bisect_right(self._upto, first)
        while first < last:
            before = self._upto[i - 1] if i else 0
            count = min(last, self._upto[i]) - first
            value = self._value[i] + self._step[i] * (first - before)
            gaps.extend(value, self._step[i], count)
            first += count
            i += 1


Stint = tuple[int, int, int]
"""A stretch of tokens, ``(gap, after, upto)``: one gap of its own (or NEVER), then those of the
ticks after `after`, up to and with `upto`, in the log."""


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


COLUMNS = (
    *("id", "arrival_ns", "prompt_len", "output_len", "priority", "status"),
    *("first_scheduled_ns", "first_token_ns", "last_token_ns", "output_tokens", "preemptions"),
    *("gap", "after", "upto"),  # its first stint
)
_ROW = Struct(f"={len(COLUMNS)}q")
_BLANK = array("q", [0] * len(COLUMNS))


class Ledger(Sequence[Record]):
    """One row per request, in order of arrival. Reads like a list of records.

    A row is written as a whole, when its request leaves or the run ends.
    """

    def __init__(self, log: TickLog) -> None:
        self.log = log
        self._cells = array("q")  # row after row
        self._more: dict[int, list[Stint]] = {}  # stints beyond the first, where there are any
        self._tenants: dict[int, str] = {}

    def open(self) -> int:
        """Add a row for a request that has arrived; return its number."""
        row = len(self._cells) // len(COLUMNS)
        self._cells.extend(_BLANK)
        return row

    def write(
        self,
        row: int,
        r: Request,
        status: Status,
        first_scheduled_ns: int = NEVER,
        first_token_ns: int = NEVER,
        last_token_ns: int = NEVER,
        output_tokens: int = 0,
        preemptions: int = 0,
        stints: Sequence[Stint] = (),
    ) -> None:
        """Fill in a row. Times that have not come are `NEVER`."""
        gap, after, upto = stints[0] if stints else (NEVER, 0, 0)
        _ROW.pack_into(
            self._cells,
            row * _ROW.size,
            r.id,
            r.arrival_ns,
            r.prompt_len,
            r.output_len,
            r.priority,
            _CODE[status],
            first_scheduled_ns,
            first_token_ns,
            last_token_ns,
            output_tokens,
            preemptions,
            gap,
            after,
            upto,
        )
        if len(stints) > 1:
            self._more[row] = list(stints[1:])
        if r.tenant:
            self._tenants[row] = r.tenant

    def column(self, name: str) -> array[int]:
        """Return one of `COLUMNS`, a number for each row. A status is an index of `STATUSES`."""
        return self._cells[COLUMNS.index(name) :: len(COLUMNS)]

    def rows(self, status: Status) -> list[int]:
        """Return the numbers of the rows with this status."""
        wanted = _CODE[status]
        return [i for i, s in enumerate(self.column("status")) if s == wanted]

    def ttft_ns(self) -> Iterator[int | None]:
        """Yield each request's TTFT."""
        for arrival, first in self._columns("arrival_ns", "first_token_ns"):
            yield None if first == NEVER else first - arrival

    def e2e_ns(self) -> Iterator[int | None]:
        """Yield each request's end-to-end latency; None unless finished."""
        done = _CODE["finished"]
        for status, arrival, last in self._columns("status", "arrival_ns", "last_token_ns"):
            yield last - arrival if status == done else None

    def tpot_ns(self) -> Iterator[float | None]:
        """Yield each request's TPOT; None unless finished, and for one token."""
        done = _CODE["finished"]
        for status, tokens, first, last in self._columns(
            "status", "output_tokens", "first_token_ns", "last_token_ns"
        ):
            yield (last - first) / (tokens - 1) if status == done and tokens > 1 else None

    def _columns(self, *names: str) -> Iterator[tuple[int, ...]]:
        return zip(*map(self.column, names), strict=True)

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
        own = [gap for gap in self.column("gap") if gap != NEVER]
        own += [gap for stints in self._more.values() for gap, _, _ in stints if gap != NEVER]
        yield from Counter(own).items()

    def request(self, row: int) -> Request:
        """Return the request of a row."""
        rid, arrival, prompt, output, priority = self._row(row)[:5]
        return Request(rid, arrival, prompt, output, priority, self._tenants.get(row, ""))

    def __len__(self) -> int:
        return len(self._cells) // len(COLUMNS)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Record | list[Record]:
        rows = range(len(self))[index]
        if isinstance(rows, range):
            return [self._record(row) for row in rows]
        return self._record(rows)

    def _row(self, row: int) -> tuple[int, ...]:
        return _ROW.unpack_from(self._cells, row * _ROW.size)

    def _record(self, row: int) -> Record:
        status, *times, tokens, preemptions, own, after, upto = self._row(row)[5:]
        gaps = Runs()
        for gap, first, last in ((own, after, upto), *self._more.get(row, ())):
            if gap != NEVER:
                gaps.append(gap)
            self.log.copy_to(gaps, first, last)
        scheduled, first_token, last_token = (None if t == NEVER else t for t in times)
        return Record(
            self.request(row),
            STATUSES[status],
            scheduled,
            first_token,
            last_token,
            tokens,
            preemptions,
            gaps,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
