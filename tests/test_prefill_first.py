"""Prefill first: what is in a step, and who leaves when blocks run out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.policies import PrefillFirst


def record(lengths, policy, kv=None):
    requests = [ss.Request(i, 0, *pair) for i, pair in enumerate(lengths)]
    result = ss.simulate(requests, policy, kv=kv, record_steps=True)
    return [
        ([tuple(s[:2]) for s in step.scheduled], step.preempted) for step in result.step_records
    ]


lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=10)


@given(
    lengths=lengths, budget=st.integers(1, 60), places=st.integers(1, 5), spare=st.integers(0, 9)
)
@settings(max_examples=150, derandomize=True, deadline=None)
def test_a_step_prefills_or_decodes_never_both(lengths, budget, places, spare):
    requests = [ss.Request(i, i * 10**7, *pair) for i, pair in enumerate(lengths)]
    kv = ss.KVCache(max(p + o for p, o in lengths) + spare, 1)
    result = ss.simulate(requests, PrefillFirst(budget, places), kv=kv, record_steps=True)
    assert len(result.finished) == len(requests)
    for step in result.step_records:
        assert not (step.work.prefill_tokens and step.work.decodes)
        assert len(step.running) <= places
        if step.work.prefill_tokens > budget:  # too long for the budget: taken in alone
            assert len(step.scheduled) == 1
        if step.preempted:
            assert not step.work.prefill_tokens


def test_prompts_are_whole_and_come_before_any_decode():
    steps = record([(5, 2), (4, 2), (3, 2)], PrefillFirst(token_budget=9))
    assert steps == [
        ([(0, 5), (1, 4)], []),
        ([(2, 3)], []),
        ([(0, 1), (1, 1), (2, 1)], []),
    ]


def test_a_prompt_above_the_budget_goes_alone():
    steps = record([(3, 1), (20, 1), (3, 1)], PrefillFirst(token_budget=9))
    assert steps == [([(0, 3)], []), ([(1, 20)], []), ([(2, 3)], [])]


def test_nobody_overtakes_a_head_that_lacks_blocks():
    steps = record([(4, 3), (6, 1), (1, 1)], PrefillFirst(), ss.KVCache(8, 1))
    assert [s for s, _ in steps] == [[(0, 4)], [(0, 1)], [(0, 1)], [(1, 6), (2, 1)]]


def test_the_last_to_join_is_thrown_out_and_recomputed_with_its_tokens():
    # Six blocks of 4. In step 5 r0 needs its fourth; r1 leaves with five tokens made.
    steps = record([(8, 6), (8, 6)], PrefillFirst(), ss.KVCache(6, 4))
    assert steps[0] == ([(0, 8), (1, 8)], [])
    assert steps[5] == ([(0, 1)], [1])
    assert steps[6] == ([(1, 13)], [])
    assert len(steps) == 7


def test_the_one_that_asks_may_be_the_last():
    # r1 joined last and needs a block first: it leaves itself.
    steps = record([(7, 3), (4, 3)], PrefillFirst(), ss.KVCache(3, 4))
    assert steps[1] == ([(0, 1)], [1])


@pytest.mark.parametrize("option", ["token_budget", "max_running"])
def test_options_are_positive(option):
    with pytest.raises(ss.InputError, match=f"{option} must be a whole number, 1 or more, not 0"):
        PrefillFirst(**{option: 0})


@given(
    cached=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    budget=st.integers(1, 6),
    free=st.integers(0, 3),
)
@settings(max_examples=150, derandomize=True, deadline=None)
def test_a_budget_of_prompt_tokens_does_not_limit_decodes(cached, budget, free):
    """Served one by one, or all together: the same get a token, the same are thrown out."""
    running = [ss.Progress(i, 0, n, computed=n, produced=1, blocks=-(-n // 4))
               for i, n in enumerate(cached)]  # fmt: skip
    plans = [
        PrefillFirst(most).plan(ss.View(0, 9, [], running, free, 30, 4)) for most in (budget, 100)
    ]
    served = [
        {r.id for r in running if plan.decode_all} - {*plan.preempted} | {*dict(plan.scheduled)}
        for plan in plans
    ]
    assert served[0] == served[1]
    assert plans[0].preempted == plans[1].preempted
    assert plans[0].repeatable == plans[1].repeatable
    assert all(tokens == 1 for _, tokens in plans[0].scheduled)


def test_who_asks_for_blocks_and_who_waits_are_told_why():
    # r0 needs a block, and so would r2 to join; a budget of 1 makes the two who run take turns.
    running = [ss.Progress(i, 0, 4 - i, computed=4 - i, produced=1, blocks=1) for i in range(2)]
    waiting = [ss.Progress(i, 0, 2) for i in (2, 3)]
    for budget, why in (
        (1, "r1 is thrown out: r0 needs 1 block more, 0 free"),
        (9, "r1 is thrown out: those who decode need 1 block more, 0 free"),
    ):
        plan = PrefillFirst(budget).plan(ss.View(0, 9, waiting, running, 0, 2, 4))
        assert plan.preempted == [1]
        assert plan.reasons == {1: why, 2: "r2 waits: needs 1 block, 0 free"}
        assert not plan.repeatable
