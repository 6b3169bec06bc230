"""The batch against a plain list of requests, each of which is brought forward on its own."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.batch import Batch
from servesim.request import Progress, write_blocks


def fields(r):
    return {name: getattr(r, name) for name in Progress.__dataclass_fields__}


class Plain:
    """What a batch stands for: in every tick, each of those `together` gets a token."""

    def __init__(self, block_size, on_demand):
        self.block_size, self.on_demand = block_size, on_demand
        self.members, self.together = [], set()

    def tick(self):
        for r in self.decoding():
            r["computed"] += 1
            r["produced"] += 1
            if self.on_demand:
                r["blocks"] = -(-r["computed"] // self.block_size)

    def decoding(self):
        return [r for r in self.members if r["id"] in self.together]

    def blocks_to_decode(self):
        """Return how many of them have no room left in their last block."""
        full = [r for r in self.decoding() if r["computed"] % self.block_size == 0]
        return len(full) if self.on_demand else 0

    def steps_within(self, free, most):
        """Take steps until there are no blocks for the next one."""
        for steps in range(most):
            free -= self.blocks_to_decode()
            if free < 0:
                return steps
            self.tick()
        return most


def agree(batch, plain, in_order):
    """Look whether all is right that can be asked without looking at each of them."""
    together = plain.decoding()
    assert len(batch) == batch.size == len(plain.members)
    assert batch.decodes == len(together)
    assert batch.context == sum(r["computed"] + 1 for r in together)
    assert batch.blocks_to_decode == plain.blocks_to_decode()
    alone = [r["id"] not in plain.together for r in plain.members]
    assert batch.decodes_lead is (alone == sorted(alone))
    prefilling = [r.id for r in batch.prefilling]
    assert (prefilling if in_order else sorted(prefilling)) == [
        r["id"] for r in plain.members if r["id"] not in plain.together
    ]
    phases = Counter((r["computed"] - batch.ticks) % batch.block_size for r in together)
    assert batch.phases == (phases if batch.on_demand else {})


changes = st.tuples(
    st.sampled_from(["join", "join", "start", "start", "stop", "leave", "tick", "tick", "look"]),
    st.integers(0, 9),
)


def built(steps, block_size, on_demand):
    """Do the same to a batch and to its plain counterpart."""
    batch, plain = Batch(block_size, on_demand), Plain(block_size, on_demand)
    in_order = True
    for number, (what, n) in enumerate(steps):
        members = plain.members
        one = members[n % len(members)]["id"] if members else None
        if what == "join":
            r = Progress(number, 0, n + 1, computed=n + 1, produced=1)
            write_blocks(r, -(-(n + 1) // block_size))
            batch.join(r)
            members.append(fields(r))
        elif what == "tick":
            batch.ticks += 1
            batch.context += batch.decodes
            plain.tick()
        elif one is None:
            assert not batch.has(n)
        elif what == "start" and one not in plain.together:
            batch.start_decoding(batch.look(one))
            plain.together.add(one)
        elif what == "stop":
            in_order &= one not in plain.together  # whoever stops is behind the others
            batch.stop_decoding(one)
            plain.together.discard(one)
        elif what == "leave":
            gone = batch.look(one) if n % 2 else next(r for r in batch if r.id == one)
            batch.leave(one)
            plain.together.discard(one)
            (left,) = (r for r in members if r["id"] == one)
            assert fields(gone) == left
            members.remove(left)
            assert not batch.has(one)
        elif what == "look":
            assert fields(batch.look(one)) in members
        agree(batch, plain, in_order)
    return batch, plain


@given(
    steps=st.lists(changes, min_size=10, max_size=40),
    block_size=st.integers(1, 4),
    on_demand=st.booleans(),
)
@settings(max_examples=150)
def test_a_batch_stands_for_a_list(steps, block_size, on_demand):
    batch, plain = built(steps, block_size, on_demand)
    assert all(batch.has(r["id"]) for r in plain.members)
    assert [fields(r) for r in reversed(batch)] == plain.members[::-1]
    batch, plain = built(steps, block_size, on_demand)
    assert [fields(r) for r in batch] == plain.members
    assert [fields(r) for r in batch[1:]] == plain.members[1:]


@given(
    steps=st.lists(changes, min_size=10, max_size=20),
    block_size=st.integers(1, 4),
    on_demand=st.booleans(),
    free=st.integers(0, 30),
    most=st.integers(0, 30),
)
@settings(max_examples=150)
def test_as_many_steps_fit_as_there_are_blocks_for(steps, block_size, on_demand, free, most):
    batch, plain = built(steps, block_size, on_demand)
    assert batch.steps_within(free, most) == plain.steps_within(free, most)


def test_any_number_of_steps_fits_at_once():
    batch = Batch.of([Progress(0, 0, 5, computed=5, produced=1)], 16, on_demand=True)
    assert (batch.decodes, batch.size) == (1, 1)
    assert batch.steps_within(10**15, 10**16) == 10**16
    # 11 tokens fit into the block that it holds, 16 into each of the others.
    assert [batch.steps_within(0, most) for most in (10, 11, 12)] == [10, 11, 11]
    assert batch.steps_within(10**15, 10**17) == 11 + 16 * 10**15


def test_who_leaves_leaves_no_trace():
    both = [Progress(i, 0, 5, computed=5, produced=1) for i in range(2)]
    batch = Batch.of(both, 16, on_demand=True)
    assert batch.phases == {5: 2}
    batch.leave(0)
    assert batch.phases == {5: 1}
    batch.stop_decoding(1)
    assert (batch.phases, batch.decodes, batch.context) == ({}, 0, 0)


def test_a_batch_is_built_from_those_who_decode_and_those_who_do_not():
    decodes, begins = Progress(0, 0, 5, computed=5, produced=1), Progress(1, 0, 5, computed=2)
    batch = Batch.of([begins, decodes], 1, on_demand=True)
    assert list(batch) == [begins, decodes]
    assert (list(batch.prefilling), batch.decodes, batch.blocks_to_decode) == ([begins], 1, 1)
    assert not batch.decodes_lead
    assert Batch.of([decodes, begins], 1, on_demand=False).decodes_lead


def test_a_batch_is_compared_and_joined_like_a_list():
    first, second = ss.Progress(0, 0, 5), ss.Progress(1, 0, 5)
    others = [second]
    batch = Batch.of([first], 16, on_demand=True)
    assert batch + others == [first, second]
    assert batch == [first] == batch
    assert batch == Batch.of([first], 1, on_demand=False)
    assert batch != others
    assert batch != (first,)
    assert batch != 3
    assert repr(batch) == repr([first])
    with pytest.raises(TypeError):
        hash(batch)
