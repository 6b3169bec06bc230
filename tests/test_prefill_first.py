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
