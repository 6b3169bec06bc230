"""The block pool: what is held plus what is free never changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import servesim as ss
from servesim.kv import UNLIMITED, BuddyPool, Room, blocks_for, so_many


class Pool(RuleBasedStateMachine):
    """Owners take and give back in any order; a dict keeps the books a second time."""

    @initialize(size=st.integers(0, 30), owners=st.integers(1, 4))
    def start(self, size, owners):
        self.pool = ss.kv.BlockPool(size, 16)
        self.owners = [ss.Progress(i, 0, 1) for i in range(owners)]
        self.held = dict.fromkeys(range(owners), 0)
        self.size, self.peak = size, 0

    @rule(owner=st.integers(0, 3), blocks=st.integers(-2, 35))
    def take(self, owner, blocks):
        who = self.owners[owner % len(self.owners)]
        if 0 <= blocks <= self.size - sum(self.held.values()):
            self.pool.take(who, blocks)
            self.held[who.id] += blocks
            self.peak = max(self.peak, sum(self.held.values()))
        else:
            with pytest.raises(ValueError, match=f"request {who.id} takes {blocks} blocks"):
                self.pool.take(who, blocks)

    @rule(owner=st.integers(0, 3))
    def give_back(self, owner):
        who = self.owners[owner % len(self.owners)]
        self.pool.give_back(who)
        self.held[who.id] = 0

    @invariant()
    def the_books_agree(self):
        assert {r.id: r.blocks for r in self.owners} == self.held
        assert self.pool.held == sum(self.held.values())
        assert self.pool.free + self.pool.held == self.pool.size == self.size
        assert self.pool.free >= 0
        assert self.pool.peak == self.peak


Pool.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, derandomize=True, deadline=None
)
TestPool = Pool.TestCase


class Buddies(RuleBasedStateMachine):
    """The same with chunks of neighbors; every block's owner is written down."""

    @initialize(size=st.integers(1, 40))
    def start(self, size):
        self.pool = ss.KVCache(size, contiguous=True).pool()
        self.owners = [ss.Progress(i, 0, 1) for i in range(5)]
        self.size, self.peak = size, 0

    @rule(owner=st.integers(0, 4), blocks=st.integers(0, 40))
    def take(self, owner, blocks):
        who = self.owners[owner]
        holes, held = self.pool.holes(), who.blocks
        power = blocks and not blocks & (blocks - 1)
        if not blocks:
            self.pool.take(who, 0)
            assert who.blocks == held
        elif power and any(hole >= blocks for hole in holes):
            self.pool.take(who, blocks)
            assert who.blocks == blocks
            # An owner that moves holds both chunks for a moment; only the pool's own peak shows it.
            self.peak = max(self.peak, self.pool.held)
        else:
            with pytest.raises(ValueError, match=f"request {owner} takes {blocks} blocks"):
                self.pool.take(who, blocks)
            assert (self.pool.holes(), who.blocks) == (holes, held)

    @rule(owner=st.integers(0, 4))
    def give_back(self, owner):
        self.pool.give_back(self.owners[owner])
        assert self.owners[owner].blocks == 0

    @invariant()
    def no_block_has_two_owners(self):
        chunks = [self.pool.chunk(r) for r in self.owners]
        used = [block for chunk in chunks for block in chunk]
        assert len(used) == len(set(used)) == self.pool.held
        assert all(0 <= block < self.size for block in used)
        assert all(chunk.start % len(chunk) == 0 for chunk in chunks if chunk)

    @invariant()
    def holes_are_all_that_is_free_and_as_large_as_can_be(self):
        holes = self.pool.holes()
        assert sum(holes) == self.pool.free == self.size - self.pool.held
        assert holes == sorted(holes, reverse=True)
        assert self.pool.peak >= self.peak
        if not self.pool.held:  # everything has been joined again
            assert holes == [1 << b for b in range(6, -1, -1) if self.size & 1 << b]


Buddies.TestCase.settings = Pool.TestCase.settings
TestBuddies = Buddies.TestCase


@given(tokens=st.integers(0, 10**6), size=st.integers(1, 1000))
def test_blocks_hold_all_tokens_and_none_is_superfluous(tokens, size):
    blocks = blocks_for(tokens, size)
    assert blocks * size >= tokens > (blocks - 1) * size


@pytest.mark.parametrize(
    ("cache", "usable"),
    [
        (ss.KVCache(), UNLIMITED),
        (ss.KVCache(10), 10),
        (ss.KVCache(10, null_block=True), 9),
        (ss.KVCache(1, block_size=1), 1),
        (ss.KVCache(11, contiguous=True), 11),
    ],
)
def test_usable_blocks(cache, usable):
    assert cache.usable == usable
    assert cache.largest == (8 if cache.contiguous else usable)
    pool = cache.pool()
    assert (pool.size, pool.free, pool.held) == (usable, usable, 0)
    assert pool.block_size == cache.block_size


@pytest.mark.parametrize("blocks", [0, -1, 1.5, "10", True])
def test_the_number_of_blocks_is_a_positive_whole_number(blocks):
    with pytest.raises(ss.InputError, match="blocks must be"):
        ss.KVCache(blocks)


@pytest.mark.parametrize("size", [0, -1, 1.5, "16", None, True])
def test_the_size_of_a_block_is_a_positive_whole_number(size):
    with pytest.raises(ss.InputError, match="block_size must be"):
        ss.KVCache(10, size)


def test_a_block_holds_16_tokens_unless_told_otherwise():
    assert ss.KVCache().block_size == 16


@pytest.mark.parametrize("contiguous", [False, True])
def test_a_pool_gives_all_it_has_and_no_more(contiguous):
    pool = ss.KVCache(4, contiguous=contiguous).pool()
    assert (pool.free, pool.held, pool.peak) == (4, 0, 0)
    pool.take(ss.Progress(0, 20, 1), 0)
    assert (pool.free, pool.peak) == (4, 0)
    pool.take(ss.Progress(0, 60, 1), 4)
    assert (pool.free, pool.held, pool.peak) == (0, 4, 4)
    with pytest.raises(ValueError, match="request 1 takes 1 blocks"):
        pool.take(ss.Progress(1, 1, 1), 1)


def test_blocks_are_not_taken_back_by_taking_fewer_than_none():
    with pytest.raises(ValueError, match="request 0 takes -1 blocks"):
        ss.KVCache(4).pool().take(ss.Progress(0, 20, 1), -1)


@pytest.mark.parametrize(("blocks", "null_block"), [(1, False), (2, True)])
def test_one_block_can_be_cut_up_and_none_cannot(blocks, null_block):
    cache = ss.KVCache(blocks, null_block=null_block, contiguous=True)
    assert (cache.usable, cache.largest) == (1, 1)
    with pytest.raises(ss.InputError, match="blocks"):
        ss.KVCache(blocks - 1, null_block=null_block, contiguous=True)


def test_one_block_is_not_blocks():
    assert [so_many(n) for n in range(3)] == ["0 blocks", "1 block", "2 blocks"]


def test_of_equal_holes_the_first_is_taken():
    pool, owners = BuddyPool(8, 16), [ss.Progress(i, 0, 1) for i in range(4)]
    for owner in owners:
        pool.take(owner, 2)
    for owner in (owners[3], owners[1]):  # their buddies stay, so two holes of 2 are left
        pool.give_back(owner)
    newcomer = ss.Progress(9, 0, 1)
    pool.take(newcomer, 2)
    assert pool.chunk(newcomer) == range(2, 4)


# --- room while a plan is made


def test_taking_nothing_leaves_the_holes_as_they_are():
    room = Room(5, [4, 1])
    assert room.take(0)
    room.give(0)
    assert (room.free, room.holes) == (5, [4, 1])


def test_a_chunk_given_back_can_be_taken_again():
    room = Room(4, [4])
    assert not room.take(8)
    room.give(8)
    assert (room.free, room.in_pieces) == (12, ", the largest hole is 8")
    assert room.take(8)
    assert room.take(4)
    assert (room.free, room.in_pieces) == (0, ", the largest hole is 0")


def test_with_paging_there_are_no_pieces():
    room = Room(4)
    room.give(2)
    assert (room.free, room.holes, room.in_pieces) == (6, None, "")
    assert room.take(6)
    assert not room.take(1)
