"""The KV cache as a pool of blocks: who holds how many, and how many are free.

A pool only counts. Blocks are interchangeable (that is the point of paging), so which block is
whose matters to a picture, not to a schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InputError
from .request import Progress

UNLIMITED = 10**15
"""Blocks in a pool without a limit: a number, so that policies can compare with it."""


def blocks_for(tokens: int, block_size: int) -> int:
    """Return how many blocks of `block_size` tokens hold `tokens` tokens."""
    return -(-tokens // block_size)


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

    Raises
    ------
    InputError
        If a number is not positive.
    """

    blocks: int | None = None
    block_size: int = 16
    null_block: bool = False

    def __post_init__(self) -> None:
        if self.blocks is not None and (type(self.blocks) is not int or self.blocks < 1):
            raise InputError(
                f"KVCache: blocks must be a whole number, 1 or more, or None for no limit, "
                f"not {self.blocks!r}"
            )
        if type(self.block_size) is not int or self.block_size < 1:
            raise InputError(
                f"KVCache: block_size must be a whole number of tokens, 1 or more, "
                f"not {self.block_size!r}"
            )

    @property
    def usable(self) -> int:
        """Blocks that requests can hold."""
        if self.blocks is None:
            return UNLIMITED
        return self.blocks - self.null_block

    def pool(self) -> BlockPool:
        """Return an empty pool of this size."""
        return BlockPool(self.usable, self.block_size)


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

    def take(self, owner: Progress, blocks: int) -> None:
        """Hand `blocks` free blocks to `owner`.

        Raises
        ------
        ValueError
            If fewer are free. The engine's audit has checked this before.
        """
        if not 0 <= blocks <= self.free:
            raise ValueError(f"request {owner.id} takes {blocks} blocks, {self.free} are free")
        self.free -= blocks
        owner.blocks += blocks
        self.peak = max(self.peak, self.size - self.free)

    def give_back(self, owner: Progress) -> None:
        """Take back all blocks that `owner` holds."""
        self.free += owner.blocks
        owner.blocks = 0
