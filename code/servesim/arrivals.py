"""The requests of a run, taken one by one as their time comes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from .checks import iterable
from .errors import InputError, brief
from .request import Request

NOT_DUE = 2**63
"""A time that never comes."""

_END = object()


class Arrivals:
    """A workload, checked while it is read, one request ahead.

    Parameters
    ----------
    requests : iterable of Request
    check : callable, optional
        Called with each request; raises if it can never be served. A sequence is checked as a
        whole before the run, anything else as it comes.

    Attributes
    ----------
    next : Request or None
        The next to arrive; None if no more will come.
    due_at : int
        When that is, or `NOT_DUE`.

    Raises
    ------
    InputError
        If the workload is empty or out of order, or holds an id twice.
    """

    def __init__(
        self, requests: Iterable[Request], check: Callable[[Request], None] | None = None
    ) -> None:
        iterable("requests", requests, "servesim.Request objects")
        if check is not None and isinstance(requests, Sequence):
            for r in requests:
                if not isinstance(r, Request):
                    _refuse(r)
                check(r)
            check = None
        self._check = check
        self._source: Iterator[Request] = iter(requests)
        self._ids = array("q")  # of all so far
        self._last = -1  # the last of them
        self._known: set[int] | None = None  # the same, kept only if they do not ascend
        self.next: Request | None = None
        self.due_at = 0
        self.take()
        if self.next is None:
            raise InputError("the workload is empty: give at least one request")

    def take(self) -> Request | None:
        """Return the next request, and look at the one after it."""
        taken, r = self.next, next(self._source, _END)
        if r is _END:
            self.next, self.due_at = None, NOT_DUE
            return taken
        if not isinstance(r, Request):
            _refuse(r)
        self.next = r
        rid = r.id
        if rid <= self._last or self._known is not None:
            self._check_new(rid)
        self._last = rid
        self._ids.append(rid)
        if r.arrival_ns < self.due_at:
            raise InputError(
                f"request {r.id} arrives at {r.arrival_ns} ns, before the one ahead of it "
                f"({self.due_at} ns): sort the workload by arrival"
            )
        self.due_at = r.arrival_ns
        if self._check is not None:
            self._check(r)
        return taken

    def _check_new(self, rid: int) -> None:
        """Refuse an id that was there before. Ascending ids need no set to look in."""
        if self._known is None:
            self._known = set(self._ids)
        if rid in self._known:
            raise InputError(f"request {rid} appears twice: ids must be unique")
        self._known.add(rid)


def _refuse(r: object) -> NoReturn:
    raise InputError(f"requests must hold servesim.Request objects only, not {brief(r)}")
