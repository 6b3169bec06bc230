"""The running requests. Those that decode advance together, without being touched one by one.

Each decode step adds one token to every decoding request. So it is enough to count the steps
(`ticks`): what a request has computed follows from the tick at which it was last looked at, and is
filled in when someone looks again. That is why a step costs what changes in it, and not what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import SupportsIndex, overload

from .request import Progress, write_blocks, write_computed, write_produced


class Batch(Sequence[Progress]):
    """The running requests, in the order in which they joined. Reads like a list.

    Parameters
    ----------
    block_size : int
        Tokens in a KV block.
    on_demand : bool
        True if a decoding request buys a block whenever its last one is full; False if it got
        all it needs when it joined.

    Attributes
    ----------
    phases : dict of int to int
        How many decoding requests have the same ``(computed - ticks) % block_size``: it does not
        change while they decode, and tells when they need a block. Empty if none ever does.
    ticks : int
        Steps so far in which all decoding requests got a token.
    size, decodes : int
        How many requests run (its length), and how many of them decode.
    context : int
        Tokens they will attend to in their next step, their own new one included.
    """

    __slots__ = (
        "_members",
        "_prefilling",
        "_since",
        "block_size",
        "context",
        "decodes",
        "on_demand",
        "phases",
        "size",
        "ticks",
    )

    def __init__(self, block_size: int, on_demand: bool) -> None:
        self.block_size, self.on_demand = block_size, on_demand
        self.ticks = self.decodes = self.context = self.size = 0
        self._members: dict[int, Progress] = {}
        self._prefilling: dict[int, Progress] = {}
        self._since: dict[int, int] = {}  # decoding requests: the tick they are up to date with
        self.phases: dict[int, int] = {}

    @classmethod
    def of(cls, requests: Iterable[Progress], block_size: int, on_demand: bool) -> Batch:
        """Build a batch from requests."""
        batch = cls(block_size, on_demand)
        for r in requests:
            batch.join(r)
            if r.decoding:
                batch.start_decoding(r)
        return batch

    # -- what a policy may ask without looking at every request -------------------------------

    @property
    def prefilling(self) -> Iterable[Progress]:
        """The running requests that do not decode yet, in the order in which they joined."""
        return self._prefilling.values()

    @property
    def blocks_to_decode(self) -> int:
        """KV blocks needed to give every decoding request its next token."""
        return self.phases.get(-self.ticks % self.block_size, 0)

    @property
    def decodes_lead(self) -> bool:
        """True if all that decode joined before all that do not."""
        if not self._prefilling:
            return True
        late = islice(reversed(self._members), len(self._prefilling))
        return all(rid in self._prefilling for rid in late)

    # -- reading it like a list ---------------------------------------------------------------

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Progress]:
        for rid in self._since:
            self.look(rid)
        return iter(self._members.values())

    @overload
    def __getitem__(self, index: SupportsIndex) -> Progress: ...
    @overload
    def __getitem__(self, index: slice) -> list[Progress]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Progress | list[Progress]:
        return list(self)[index]

    def __reversed__(self) -> Iterator[Progress]:
        """Go through the batch from its end; only those who are reached are looked at."""
        return map(self.look, reversed(self._members))

    def __add__(self, other: Iterable[Progress]) -> list[Progress]:
        return [*self, *other]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def has(self, rid: object) -> bool:
        """Tell whether a request with this id is running."""
        return rid in self._members

    def look(self, rid: int) -> Progress:
        """Return a running request, brought up to date."""
        r = self._members[rid]
        since = self._since.get(rid, self.ticks)
        if since != self.ticks:
            self._bring_up_to_date(r, since)
            self._since[rid] = self.ticks
        return r

    def _bring_up_to_date(self, r: Progress, since: int) -> None:
        steps = self.ticks - since
        computed = r.computed + steps
        write_computed(r, computed)
        write_produced(r, r.produced + steps)
        if self.on_demand:
            write_blocks(r, -(-computed // self.block_size))

    # -- for the engine -----------------------------------------------------------------------

    def join(self, r: Progress) -> None:
        """Add a request at the end."""
        rid = r.id
        self._members[rid] = self._prefilling[rid] = r
        self.size += 1

    def leave(self, rid: int) -> None:
        """Remove a request, brought up to date."""
        if rid in self._since:
            self._end_decoding(rid)
        else:
            del self._prefilling[rid]
        del self._members[rid]
        self.size -= 1

    def start_decoding(self, r: Progress) -> None:
        """Let a request advance with the others from the next tick on."""
        rid, computed = r.id, r.computed
        del self._prefilling[rid]
        self._since[rid] = self.ticks
        self.decodes += 1
        self.context += computed + 1
        if self.on_demand:
            phase = (computed - self.ticks) % self.block_size
            self.phases[phase] = self.phases.get(phase, 0) + 1

    def stop_decoding(self, rid: int) -> None:
        """Let a request advance on its own again, brought up to date; if it did not already."""
        if rid in self._since:
            self._end_decoding(rid)
            self._prefilling[rid] = self._members[rid]

    def _end_decoding(self, rid: int) -> None:
        r = self._members[rid]
        self._bring_up_to_date(r, self._since.pop(rid))
        computed = r.computed
        self.decodes -= 1
        self.context -= computed + 1
        if self.on_demand:
            phase = (computed - self.ticks) % self.block_size
            if self.phases[phase] > 1:
                self.phases[phase] -= 1
            else:
                del self.phases[phase]

    def steps_within(self, free: int, most: int) -> int:
        """Return how many decode steps, `most` at most, can be bought with `free` blocks."""
        if not self.phases:
            return most
        # A block each, every block_size steps; then one after the other.
        steps = free // self.decodes * self.block_size
        if steps >= most:
            return most
        free %= self.decodes
        while steps < most:
            free -= self.phases.get(-(self.ticks + steps) % self.block_size, 0)
            if free < 0:
                return steps
            steps += 1
        return most
