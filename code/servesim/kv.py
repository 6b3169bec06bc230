"""The KV cache as a pool of blocks: who holds how many, and how many are free.

With paging a pool only counts. Blocks are interchangeable (that is the point of it), so which
block is whose matters to a picture, not to a schedule. Without paging a request's blocks must be
neighbors, and it does matter: a buddy allocator finds a place for them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .checks import at_least, flag, instance, list_of, whole_from
from .errors import InputError
from .request import Progress, write_blocks

if TYPE_CHECKING:
    from .trace import StepRecord

UNLIMITED = 10**15
"""Blocks in a pool without a limit: a number, so that policies can compare with it."""


def blocks_for(tokens: int, block_size: int) -> int:
    """Return how many blocks of `block_size` tokens hold `tokens` tokens."""
    return -(-tokens // block_size)


def so_many(count: int, unit: str = "block") -> str:
    """Return ``1 block`` or ``2 blocks``, for reasons."""
    return f"{count} {unit}{'s' * (count != 1)}"


def power_of_two(blocks: int) -> int:
    """Return the smallest power of two that is not below `blocks` (1 or more)."""
    return 1 << (blocks - 1).bit_length()


@dataclass(frozen=True, slots=True)
class KVCache:
    """How much KV memory the server has.

    Parameters
    ----------
    blocks : int or None
        Number of blocks; None for no limit.
    block_size : int
        Tokens in a block.
    null_block : bool
        If True one of the blocks is a placeholder that no request can hold, as in vLLM.
    contiguous : bool
        If True the blocks of a request must be neighbors: they are cut out in chunks of a
        power of two by a buddy allocator. Without it (paging) any free blocks will do.

    Raises
    ------
    InputError
        If a number is not positive, or a contiguous cache has no limit.
    """

    blocks: int | None = None
    block_size: int = 16
    null_block: bool = False
    contiguous: bool = False

    def __post_init__(self) -> None:
        whole_from(1, block_size=self.block_size)
        at_least(1, blocks=self.blocks)
        flag(null_block=self.null_block, contiguous=self.contiguous)
        if self.contiguous and (self.blocks is None or self.usable < 1):
            raise InputError("KVCache: a contiguous cache needs a number of blocks to cut up")

    @property
    def usable(self) -> int:
        """Blocks that requests can hold."""
        if self.blocks is None:
            return UNLIMITED
        return self.blocks - self.null_block

    @property
    def largest(self) -> int:
        """Most blocks that one request can hold."""
        return 1 << (self.usable.bit_length() - 1) if self.contiguous else self.usable

    def pool(self) -> BlockPool:
        """Return an empty pool of this size."""
        kind = BuddyPool if self.contiguous else BlockPool
        return kind(self.usable, self.block_size)


class BlockPool:
    """Blocks in use and blocks free; what is taken plus what is free never changes.

    Attributes
    ----------
    size, block_size : int
        Usable blocks, and tokens in each.
    free : int
        Blocks that nobody holds.
    peak : int
        Most blocks that were held at once.
    """

    __slots__ = ("block_size", "free", "peak", "size")

    def __init__(self, size: int, block_size: int) -> None:
        self.size = self.free = size
        self.block_size = block_size
        self.peak = 0

    @property
    def held(self) -> int:
        """Blocks in use."""
        return self.size - self.free

    def holes(self) -> list[int] | None:
        """Return the sizes of the free chunks, largest first; None if any free block will do."""
        return None

    def take(self, owner: Progress, blocks: int) -> None:
        """Hand `blocks` free blocks to `owner`.

        Raises
        ------
        ValueError
            If fewer are free. The engine's audit has checked this before.
        """
        if not 0 <= blocks <= self.free:
            raise ValueError(f"request {owner.id} takes {blocks} blocks, {self.free} are free")
        write_blocks(owner, owner.blocks + blocks)
        self.buy(blocks)

    def buy(self, blocks: int) -> None:
        """Hand out free blocks to requests that keep their own count (see `Batch`)."""
        self.free -= blocks
        held = self.size - self.free
        if held > self.peak:
            self.peak = held

    def give_back(self, owner: Progress) -> None:
        """Take back all blocks that `owner` holds."""
        self.free += owner.blocks
        write_blocks(owner, 0)


class BuddyPool(BlockPool):
    """A pool that hands out chunks: 2, 4, 8, ... neighboring blocks, by Knuth's buddy system.

    A chunk that is too large is halved until it fits; two free halves of one chunk (buddies) are
    put together again. Of the chunks that are large enough the smallest is taken, and of equal
    ones the first. A size that is no power of two is cut into the powers it is the sum of.
    """

    __slots__ = ("_free", "_place")

    def __init__(self, size: int, block_size: int) -> None:
        super().__init__(size, block_size)
        self._free: dict[int, set[int]] = {}  # where the free chunks of each size start
        self._place: dict[int, int] = {}  # where each request's chunk starts, by id
        start = 0
        for bit in reversed(range(size.bit_length())):
            if size & (1 << bit):
                self._free[1 << bit] = {start}
                start += 1 << bit

    def holes(self) -> list[int]:
        """Return the sizes of the free chunks, largest first."""
        return [size for size in sorted(self._free, reverse=True) for _ in self._free[size]]

    def chunk(self, owner: Progress) -> range:
        """Return the blocks that `owner` holds; an empty range if it holds none."""
        start = self._place.get(owner.id, 0)
        return range(start, start + owner.blocks)

    def take(self, owner: Progress, blocks: int) -> None:
        """Hand `owner` a chunk of `blocks` blocks, a power of two; 0 leaves it what it has.

        One that already holds a chunk has outgrown it and moves: it gets the new one first.

        Raises
        ------
        ValueError
            If no hole is large enough, or the number is no power of two.
        """
        if not blocks:
            return
        size = min((s for s in self._free if s >= blocks), default=0)
        if not size or blocks != power_of_two(blocks):
            raise ValueError(f"request {owner.id} takes {blocks} blocks, holes are {self.holes()}")
        start = min(self._free[size])
        self._remove(start, size)
        while size > blocks:
            size //= 2
            self._free.setdefault(size, set()).add(start + size)
        self.free -= blocks
        self.peak = max(self.peak, self.size - self.free)
        self.give_back(owner)
        self._place[owner.id] = start
        write_blocks(owner, blocks)

    def give_back(self, owner: Progress) -> None:
        """Take back the chunk that `owner` holds, and join it with its buddies if they are free."""
        size = owner.blocks
        write_blocks(owner, 0)
        if not size:
            return
        self.free += size
        start = self._place.pop(owner.id)
        while (buddy := start ^ size) in self._free.get(size, ()):
            self._remove(buddy, size)
            start, size = min(start, buddy), 2 * size
        self._free.setdefault(size, set()).add(start)

    def _remove(self, start: int, size: int) -> None:
        self._free[size].remove(start)
        if not self._free[size]:
            del self._free[size]


class Room:
    """What is left of a cache while a plan is made: free blocks, and where there are holes.

    Attributes
    ----------
    free : int
    holes : list of int or None
        As in `View`.
    """

    __slots__ = ("free", "holes")

    def __init__(self, free: int, holes: list[int] | None = None) -> None:
        self.free = free
        self.holes = None if holes is None else holes[:]

    def take(self, blocks: int) -> bool:
        """Take `blocks` blocks and return True, or return False if they cannot be had.

        A contiguous cache gives them from its smallest hole that is large enough, as the pool
        will.
        """
        if blocks > self.free:
            return False
        if self.holes is not None and blocks:
            hole = min((h for h in self.holes if h >= blocks), default=0)
            if not hole:
                return False
            self.holes.remove(hole)
            while hole > blocks:
                hole //= 2
                self.holes.append(hole)
        self.free -= blocks
        return True

    def give(self, blocks: int) -> None:
        """Count blocks as given back; a chunk becomes a hole of its own, not joined with others."""
        self.free += blocks
        if blocks and self.holes is not None:
            self.holes.append(blocks)

    @property
    def in_pieces(self) -> str:
        """Say how large the largest hole is, for messages; nothing if there are no holes."""
        if self.holes is None:
            return ""
        return f", the largest hole is {max(self.holes, default=0)}"


class Snapshot(NamedTuple):
    """The cache in one step, block by block.

    Attributes
    ----------
    owners : list of int or None
        Which request holds each block after the plan; None if nobody does.
    tokens : list of int
        How many tokens' keys and values are in each block at the end of the step.
    """

    owners: list[int | None]
    tokens: list[int]


def block_map(steps: Iterable[StepRecord], kv: KVCache) -> list[Snapshot]:
    """Return which request holds which block, step by step.

    A schedule does not depend on it. With paging any free block will do; here it is the one with
    the lowest number. In a contiguous cache it is where the buddy allocator put the chunk.

    Parameters
    ----------
    steps : iterable of StepRecord
        All steps of a run with ``record_steps=True``, from the first on.
    kv : KVCache
        The cache of that run; it must have a limit.

    Raises
    ------
    InputError
        If the cache has no limit.
    """
    instance(KVCache, kv=kv)
    if kv.blocks is None:
        raise InputError("a block map needs a KV cache with a number of blocks")
    from .trace import StepRecord  # which knows this module

    book = _BlockBook(kv)
    shots = []
    for step in list_of(StepRecord, "steps", steps):
        for rid in step.preempted:
            book.give_back(rid)
        for scheduled in step.scheduled:
            book.hold(scheduled.id, step.blocks[scheduled.id], scheduled.tokens)
        shots.append(book.snapshot())
        for rid in step.finished:
            book.give_back(rid)
    return shots


class _BlockBook:
    """Who holds which blocks: their numbers in order, and how many tokens are in them."""

    def __init__(self, kv: KVCache) -> None:
        assert kv.blocks is not None
        self.size, self.first = kv.block_size, int(kv.null_block)
        self.free = list(range(self.first, self.first + kv.usable))  # a heap: the lowest first
        self.pool = kv.pool()
        self.owners: dict[int, Progress] = {}
        self.blocks: dict[int, list[int]] = {}
        self.tokens: dict[int, int] = {}
        self.now = Snapshot([None] * kv.blocks, [0] * kv.blocks)

    def hold(self, rid: int, blocks: int, tokens: int) -> None:
        """Let a request hold so many blocks in all, and put tokens into them."""
        before = self.tokens.get(rid, 0)
        after = self.tokens[rid] = before + tokens
        held = self.blocks.setdefault(rid, [])
        if len(held) != blocks:
            if isinstance(self.pool, BuddyPool):
                owner = self.owners.setdefault(rid, Progress(rid, 0, 1))
                self.pool.take(owner, blocks)
                held[:] = [self.first + i for i in self.pool.chunk(owner)]
            else:
                held += [heapq.heappop(self.free) for _ in range(blocks - len(held))]
            for block in held:
                self.now.owners[block] = rid
        for i in range(before // self.size, blocks_for(after, self.size)):
            self.now.tokens[held[i]] = min(self.size, after - i * self.size)

    def give_back(self, rid: int) -> None:
        """Take back what a request holds."""
        if rid in self.owners:
            self.pool.give_back(self.owners.pop(rid))
        for block in self.blocks.pop(rid, []):
            heapq.heappush(self.free, block)
            self.now.owners[block], self.now.tokens[block] = None, 0
        self.tokens.pop(rid, None)

    def snapshot(self) -> Snapshot:
        """Return the cache as it is now."""
        return Snapshot(self.now.owners[:], self.now.tokens[:])
