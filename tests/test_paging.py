"""KV memory under every policy: nothing is lost, nothing is held twice, everybody finishes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import servesim as ss
from servesim.engine import Engine
from servesim.kv import BuddyPool, Room, block_map, blocks_for, power_of_two
from servesim.request import Progress

many = settings(max_examples=150, derandomize=True, deadline=None)

ON_DEMAND = (
    ss.policies.VLLM(),
    ss.policies.VLLM(max_num_batched_tokens=8, max_num_seqs=3, release="0.11.2"),
    ss.policies.VLLM(policy="priority", long_prefill_token_threshold=5),
    ss.policies.VLLM(enable_chunked_prefill=False, max_num_batched_tokens=64, watermark=0.2),
    ss.policies.VLLM(policy="priority", release="0.11.2", scheduler_reserve_full_isl=False),
    ss.policies.PrefillFirst(),
    ss.policies.PrefillFirst(token_budget=20, max_running=3),
)
RESERVE_ALL = (
    ss.policies.Naive(),
    ss.policies.Static(3),
    ss.policies.Continuous(),
    ss.policies.Continuous(max_running=2, prefill_alone=True),
    ss.policies.Chunked(token_budget=10),
    ss.policies.Orca(),
    ss.policies.Orca("pow2"),
    ss.policies.Orca("max", max_len=70),
)


@st.composite
def workloads(draw):
    """Up to a dozen short requests, many of them at the same instant."""
    clock, requests = 0, []
    for i in range(draw(st.integers(1, 12))):
        prompt, output = draw(st.integers(1, 50)), draw(st.integers(1, 12))
        requests.append(ss.Request(i, clock, prompt, output, draw(st.integers(0, 2))))
        clock += draw(st.sampled_from([0, 0, 30_000_000, 400_000_000]))
    return requests


@st.composite
def runs(draw, policies=ON_DEMAND + RESERVE_ALL):
    """A workload, a policy, and a cache that is tight but holds the largest request."""
    requests, policy = draw(workloads()), draw(st.sampled_from(policies))
    size = draw(st.sampled_from([1, 4, 16]))
    predict = getattr(policy, "predict", lambda prompt, output: output)
    tokens = max(r.prompt_len + predict(r.prompt_len, r.output_len) for r in requests)
    contiguous = draw(st.booleans()) and getattr(policy, "reserve_all", False)
    least = blocks_for(tokens, size)
    if contiguous:
        least = power_of_two(least)
    null = draw(st.booleans())
    spare = draw(st.sampled_from([0, 1, 2, 5, 30]))
    return requests, policy, ss.KVCache(least + spare + null, size, null, contiguous)


def recorded(requests, policy, kv, **options):
    return ss.simulate(requests, policy, kv=kv, record_steps=True, **options)


# --- every policy, paged or in one piece


@given(run=runs())
@many
def test_blocks_are_conserved_in_every_step(run):
    requests, policy, kv = run
    result = recorded(requests, policy, kv)
    before = kv.usable
    for step in result.step_records:
        assert step.free_blocks[0] == before
        assert step.free_blocks[1] + sum(step.blocks.values()) == kv.usable
        assert min(step.free_blocks) >= 0
        given_back = sum(step.blocks[rid] for rid in step.finished)
        assert step.free_blocks[2] == step.free_blocks[1] + given_back
        before = step.free_blocks[2]
    assert before == kv.usable


@given(run=runs())
@many
def test_everybody_finishes_in_a_cache_that_holds_the_largest_alone(run):
    requests, policy, kv = run
    result = ss.simulate(requests, policy, kv=kv)
    assert [r.status for r in result.records] == ["finished"] * len(requests)
    assert [r.output_tokens for r in result.records] == [r.output_len for r in requests]


@given(run=runs(), less=st.integers(1, 8))
@many
def test_whoever_cannot_finish_is_named(run, less):
    requests, policy, kv = run
    kv = ss.KVCache(max(1 + kv.null_block, kv.blocks - less), kv.block_size, kv.null_block)
    result = ss.simulate(requests, policy, kv=kv, never_fits="reject")
    predict = getattr(policy, "predict", lambda prompt, output: output)
    for r, record in zip(requests, result.records, strict=True):
        tokens = r.prompt_len + predict(r.prompt_len, r.output_len) - 1
        fits = blocks_for(tokens, kv.block_size) <= kv.usable
        assert record.status == ("finished" if fits else "rejected")
    rejected = [r.request.id for r in result.rejected]
    if rejected:
        with pytest.raises(ss.InputError, match=f"request {rejected[0]} can never run"):
            ss.simulate(requests, policy, kv=kv)


@given(run=runs(policies=ON_DEMAND))
@settings(max_examples=300, derandomize=True, deadline=None)
def test_a_preempted_request_keeps_its_tokens_and_has_one_first_token(run):
    requests, policy, kv = run
    result = recorded(requests, policy, kv)
    times = {r.id: [] for r in requests}
    preempted = dict.fromkeys(times, 0)
    for step in result.step_records:
        for rid in step.preempted:
            preempted[rid] += 1
        for s in step.scheduled:
            if s.sampled:
                times[s.id].append(step.end_ns)
    for record in result.records:
        rid = record.request.id
        assert len(times[rid]) == record.request.output_len == record.output_tokens
        assert record.first_token_ns == times[rid][0]
        assert list(record.token_times_ns()) == times[rid]
        assert record.preemptions == preempted[rid]


def test_preemptions_do_happen_in_these_runs():
    requests = [ss.Request(i, 0, 20, 12) for i in range(4)]
    for policy in (ss.policies.VLLM(), ss.policies.PrefillFirst()):
        assert recorded(requests, policy, ss.KVCache(12, 8)).preemptions > 0


# --- the map


@given(run=runs())
@many
def test_the_block_map_says_what_the_steps_say(run):
    requests, policy, kv = run
    result = recorded(requests, policy, kv)
    shots = block_map(result.step_records, kv)
    assert len(shots) == len(result.step_records)
    computed = dict.fromkeys((r.id for r in requests), 0)
    for step, shot in zip(result.step_records, shots, strict=True):
        for rid in step.preempted:
            computed[rid] = 0
        for s in step.scheduled:
            computed[s.id] += s.tokens
        assert len(shot.owners) == len(shot.tokens) == kv.blocks
        held = {rid: shot.owners.count(rid) for rid in step.running}
        assert held == step.blocks
        assert shot.owners.count(None) == kv.blocks - sum(held.values())
        assert not kv.null_block or shot.owners[0] is None
        for rid in step.running:
            inside = [n for o, n in zip(shot.owners, shot.tokens, strict=True) if o == rid]
            assert sum(inside) == computed[rid]
        assert all(n == 0 for o, n in zip(shot.owners, shot.tokens, strict=True) if o is None)
        assert max(shot.tokens) <= kv.block_size


@given(run=runs())
@many
def test_a_block_changes_hands_only_through_being_free(run):
    requests, policy, kv = run
    result = recorded(requests, policy, kv)
    shots = block_map(result.step_records, kv)
    for (step, shot), (after, later) in itertools.pairwise(
        zip(result.step_records, shots, strict=True)
    ):
        for before, now in zip(shot.owners, later.owners, strict=True):
            left = before is None or before in step.finished or before in after.preempted
            assert left or now == before


@given(run=runs(policies=RESERVE_ALL))
@many
def test_in_a_contiguous_cache_each_request_holds_one_aligned_chunk(run):
    requests, policy, kv = run
    if not kv.contiguous:
        return
    result = recorded(requests, policy, kv)
    for shot in block_map(result.step_records, kv):
        for rid in {o for o in shot.owners if o is not None}:
            place = [i - kv.null_block for i, o in enumerate(shot.owners) if o == rid]
            assert place == list(range(place[0], place[0] + len(place)))
            assert power_of_two(len(place)) == len(place)
            assert place[0] % len(place) == 0


def test_a_block_map_needs_a_limit():
    with pytest.raises(ss.InputError, match="needs a KV cache with a number of blocks"):
        block_map([], ss.KVCache())


def test_a_block_map_by_hand():
    # Blocks of 4. r0 has 5 tokens and makes two; r1 has 3 and makes one.
    requests = [ss.Request(0, 0, 5, 2), ss.Request(1, 0, 3, 1)]
    kv = ss.KVCache(5, 4)
    result = recorded(requests, ss.policies.VLLM(), kv)
    first, second = block_map(result.step_records, kv)
    assert first.owners == [0, 0, 1, None, None]
    assert first.tokens == [4, 1, 3, 0, 0]
    assert second.owners == [0, 0, None, None, None]
    assert second.tokens == [4, 2, 0, 0, 0]


# --- the buddy allocator


class Buddy(RuleBasedStateMachine):
    """Owners take chunks and give them back in any order."""

    @initialize(size=st.integers(1, 100))
    def start(self, size):
        self.pool, self.size = BuddyPool(size, 1), size
        self.whole = self.pool.holes()
        self.owners = [Progress(i, 0, 1) for i in range(6)]
        self.peak = 0

    @rule(who=st.integers(0, 5), bit=st.integers(0, 7))
    def take(self, who, bit):
        owner, blocks = self.owners[who], 1 << bit
        fits = max(self.pool.holes(), default=0) >= blocks
        room = Room(self.pool.free, self.pool.holes())
        assert room.take(blocks) is fits
        if not fits:
            with pytest.raises(ValueError, match=f"request {who} takes {blocks} blocks"):
                self.pool.take(owner, blocks)
            return
        moves = owner.blocks > 0
        self.peak = max(self.peak, self.pool.held + blocks)
        self.pool.take(owner, blocks)
        assert owner.blocks == blocks
        if not moves:
            assert sorted(room.holes) == sorted(self.pool.holes())
            assert room.free == self.pool.free

    @rule(who=st.integers(0, 5))
    def take_nothing(self, who):
        before = self.pool.chunk(self.owners[who])
        self.pool.take(self.owners[who], 0)
        assert self.pool.chunk(self.owners[who]) == before

    @rule(who=st.integers(0, 5), blocks=st.sampled_from([3, 5, 6, 7, 12]))
    def take_no_power_of_two(self, who, blocks):
        with pytest.raises(ValueError, match="holes are"):
            self.pool.take(self.owners[who], blocks)

    @rule(who=st.integers(0, 5))
    def give_back(self, who):
        self.pool.give_back(self.owners[who])
        assert self.owners[who].blocks == 0

    @rule()
    def give_all_back(self):
        for owner in self.owners:
            self.pool.give_back(owner)
        assert self.pool.holes() == self.whole
        assert self.pool.free == self.size

    @invariant()
    def everything_is_somewhere_once(self):
        places = [list(self.pool.chunk(o)) for o in self.owners]
        places += [
            list(range(start, start + size))
            for size, starts in self.pool._free.items()
            for start in starts
        ]
        assert sorted(itertools.chain(*places)) == list(range(self.size))
        for place in places:
            if place:
                assert power_of_two(len(place)) == len(place)
                assert place[0] % len(place) == 0
        assert sum(self.pool.holes()) == self.pool.free == self.size - self.pool.held
        assert self.pool.peak == self.peak

    @invariant()
    def no_two_free_buddies(self):
        for size, starts in self.pool._free.items():
            assert starts
            assert not any(start ^ size in starts for start in starts)


Buddy.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBuddy = Buddy.TestCase


@pytest.mark.parametrize(
    ("blocks", "power"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (2047, 2048), (2048, 2048)]
)
def test_power_of_two(blocks, power):
    assert power_of_two(blocks) == power


def test_a_pool_that_is_no_power_of_two_is_a_sum_of_them():
    holes = ss.KVCache(15_700, 1, contiguous=True).pool().holes()
    assert holes == [8192, 4096, 2048, 1024, 256, 64, 16, 4]
    assert sum(hole // 2048 for hole in holes) == 7


def test_halves_are_put_together_again():
    pool = BuddyPool(8, 1)
    a, b = Progress(0, 0, 1), Progress(1, 0, 1)
    pool.take(a, 2)
    pool.take(b, 1)
    assert (pool.chunk(a), pool.chunk(b)) == (range(2), range(2, 3))
    assert pool.holes() == [4, 1]
    pool.give_back(a)
    assert pool.holes() == [4, 2, 1]  # 3 of the first 4 are free, but not as one chunk
    pool.give_back(b)
    assert pool.holes() == [8]


def test_a_request_that_outgrows_its_chunk_moves():
    pool, a = BuddyPool(8, 1), Progress(0, 0, 1)
    pool.take(a, 2)
    pool.take(a, 4)
    assert (pool.chunk(a), pool.held, pool.peak) == (range(4, 8), 4, 6)


# --- holes and plans


class Everybody:
    """Lets in everyone, whether there is room or not."""

    knows_output_length = reserve_all = True

    def plan(self, view):
        return ss.Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])


def test_the_audit_sees_that_holes_are_too_small():
    # 12 blocks are chunks of 8 and 4: the second request's 8 do not fit, though 6 + 6 = 12.
    requests = [ss.Request(0, 0, 5, 2), ss.Request(1, 0, 5, 2)]
    with pytest.raises(ss.PlanError) as caught:
        ss.simulate(requests, Everybody(), kv=ss.KVCache(12, 1, contiguous=True))
    assert (caught.value.request, caught.value.rule) == (1, "blocks")
    assert "8 blocks are needed for 5 tokens, 4 are free, the largest hole is 4" in str(
        caught.value
    )


def test_who_waits_for_a_hole_is_told_so():
    requests = [ss.Request(i, 0, 5, 2) for i in range(3)]
    requests.append(ss.Request(3, 0, 1, 2))
    kv = ss.KVCache(20, 1, contiguous=True)
    step = recorded(requests, ss.policies.Continuous(), kv).step_records[0]
    assert step.running == [0, 1]
    assert step.reasons == {2: "r2 waits: needs 8 blocks, 4 free, the largest hole is 4"}


def test_free_blocks_in_pieces_are_of_no_use():
    # Eight blocks of 4, two for each of the first four. r0 and r2 leave after a step; then four
    # blocks are free, and r4 needs four.
    lengths = [(5, 1), (5, 4), (5, 1), (5, 4), (13, 2)]
    requests = [ss.Request(i, 0, *pair) for i, pair in enumerate(lengths)]
    paged, whole = (
        recorded(requests, ss.policies.Orca(), ss.KVCache(8, 4, contiguous=contiguous))
        for contiguous in (False, True)
    )
    assert paged.step_records[1].running == [1, 3, 4]
    assert whole.step_records[1].running == [1, 3]
    assert whole.step_records[1].reasons == {
        4: "r4 waits: needs 4 blocks, 4 free, the largest hole is 2"
    }
    assert whole.step_records[4].running == [4]


@pytest.mark.parametrize("policy", ON_DEMAND)
def test_buying_on_demand_needs_paging(policy):
    with pytest.raises(ss.InputError, match="buys blocks on demand, and a contiguous KV cache"):
        ss.simulate([ss.Request(0, 0, 1, 1)], policy, kv=ss.KVCache(8, 1, contiguous=True))


def test_a_contiguous_cache_needs_a_size():
    with pytest.raises(ss.InputError, match="needs a number of blocks to cut up"):
        ss.KVCache(contiguous=True)
    with pytest.raises(ss.InputError, match="needs a number of blocks to cut up"):
        ss.KVCache(1, null_block=True, contiguous=True)


def test_a_request_larger_than_the_largest_chunk_is_named():
    kv = ss.KVCache(15, 1, contiguous=True)
    with pytest.raises(ss.InputError, match="request 7 can never run: it needs 9 KV blocks"):
        ss.simulate([ss.Request(7, 0, 8, 2)], ss.policies.Continuous(), kv=kv)
    assert ss.simulate([ss.Request(7, 0, 7, 2)], ss.policies.Continuous(), kv=kv).finished


# --- Orca


@pytest.mark.parametrize(
    ("reserve", "prompt", "output", "expected"),
    [
        ("oracle", 100, 25, 25),
        ("pow2", 100, 25, 32),
        ("pow2", 100, 32, 32),
        ("pow2", 100, 33, 64),
        ("pow2", 1100, 600, 948),  # not beyond the model's limit
        ("max", 100, 25, 1948),
    ],
)
def test_what_orca_reserves(reserve, prompt, output, expected):
    assert ss.policies.Orca(reserve).predict(prompt, output) == expected


@given(prompt=st.integers(1, 1024), output=st.integers(1, 1024))
def test_pow2_reserves_enough_and_at_most_twice_as_much(prompt, output):
    assert output <= ss.policies.Orca("pow2").predict(prompt, output) < 2 * output or output == 1


def test_orca_names_what_is_too_long():
    with pytest.raises(ss.InputError, match=r"2000 \+ 100 tokens are above max_len=2048"):
        ss.simulate([ss.Request(0, 0, 2000, 100)], ss.policies.Orca("max"), kv=ss.KVCache(9999, 1))
    with pytest.raises(ss.InputError, match="reserve must be"):
        ss.policies.Orca("min")


@given(requests=workloads())
@many
def test_the_oracle_with_paging_is_continuous_batching(requests):
    kv = ss.KVCache(30, 4)
    orca, continuous = (
        recorded(requests, p, kv) for p in (ss.policies.Orca(), ss.policies.Continuous())
    )
    assert list(orca.records) == list(continuous.records)
    assert orca.step_records == continuous.step_records


# --- what fills the cache


@given(run=runs())
@many
def test_the_split_adds_up_and_agrees_with_the_steps(run):
    requests, policy, kv = run
    result = recorded(requests, policy, kv)
    if result.end_ns == result.start_ns:
        return
    split = result.kv_split()
    assert sum(split) == pytest.approx(100)
    assert min(split) >= -1e-9
    held = sum(s.cost_ns * sum(s.blocks.values()) for s in result.step_records)
    whole = kv.usable * (result.end_ns - result.start_ns)
    assert 100 - split.free == pytest.approx(100 * held / whole)
    if policy in ON_DEMAND:
        assert split.later == split.unused == 0
    if repr(policy) in ("Continuous()", "Orca()"):
        assert split.unused == pytest.approx(0)


def test_the_split_by_hand():
    # One request: 4 tokens in, 3 out, so 6 in the cache at its end. Steps of 1 ms: with 4, then
    # 5, then 6 tokens computed; they count from the end of the step on.
    prices = ss.cost.Affine(base_ms=1)
    kv = ss.KVCache(16, 1, contiguous=True)
    split = ss.simulate([ss.Request(0, 0, 4, 3)], ss.policies.Orca(), cost=prices, kv=kv).kv_split()
    assert split.tokens + split.later == pytest.approx(100 * 6 / 16)
    assert split.unused == 0
    assert split.rounding == pytest.approx(100 * 2 / 16)
    assert split.free == pytest.approx(100 * 8 / 16)


def test_the_split_since_a_moment_is_of_the_time_from_then_on():
    requests = [ss.Request(0, 7_000_000_000, 5, 4), ss.Request(1, 7_000_000_001, 3, 6)]
    engine = Engine(requests, ss.policies.Orca("pow2"), kv=ss.KVCache(9, 2), skip=False)
    for _ in range(4):
        engine.advance()
    first = engine.result()
    last = engine.run()
    share = (first.end_ns - first.start_ns) / (last.end_ns - last.start_ns)
    assert 0.2 < share < 0.8
    before, after = first.kv_split(), last.kv_split(since=first)
    for i, part in enumerate(last.kv_split()):
        assert part == pytest.approx(share * before[i] + (1 - share) * after[i])
    assert after.free > before.free  # r0 has left
    with pytest.raises(ss.InputError, match="some time to average"):
        last.kv_split(since=last)


def test_a_split_needs_a_limit():
    result = ss.simulate([ss.Request(0, 0, 4, 3)], ss.policies.Continuous())
    with pytest.raises(ss.InputError, match="needs a KV cache with a limit"):
        result.kv_split()
