"""Views and plans are plain data: they turn into JSON and back unchanged."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.plan import Queue, everything
from tests import strategies


def through_json(record):
    return type(record).from_json(json.loads(json.dumps(record.to_json())))


class Elsewhere:
    """Runs a policy as if in another process: all it is shown and says goes through JSON."""

    def __init__(self, policy):
        self.policy = policy
        self.knows_output_length = getattr(policy, "knows_output_length", False)
        self.reserve_all = getattr(policy, "reserve_all", False)
        if hasattr(policy, "predict"):
            self.predict = policy.predict

    def plan(self, view):
        copy = through_json(view)
        assert copy == view
        answer = self.policy.plan(copy)
        plan = through_json(answer)
        assert plan == answer
        return plan


@given(run=strategies.runs())
@settings(max_examples=200, derandomize=True, deadline=None)
def test_a_policy_behind_json_gives_the_same_run(run):
    requests, policy, options = run
    here, there = (
        ss.simulate(requests, p, record_steps=True, **options) for p in (policy, Elsewhere(policy))
    )
    here.policy, here.token_budget = there.policy, there.token_budget
    assert there == here


@pytest.mark.parametrize("mode", ["naive", "static", "continuous", "continuous_chunked"])
def test_system_a_s_modes_run_the_same_behind_json(mode, monkeypatch):
    here = ss.systems.toy_modes(12, 1)[mode]
    simulate = ss.systems.simulate
    monkeypatch.setattr(
        ss.systems, "simulate", lambda work, policy, **kw: simulate(work, Elsewhere(policy), **kw)
    )
    there = ss.systems.toy_modes(12, 1)[mode]
    assert there.records == here.records


# --- any plan and any view, not only those that a policy would make

ids = st.integers(0, 50)
plans = st.builds(
    ss.Plan,
    scheduled=st.lists(st.tuples(ids, st.integers(1, 9))),
    preempted=st.lists(ids),
    wait=st.booleans(),
    repeatable=st.booleans(),
    until_arrival=st.booleans(),
    queue=st.none() | st.lists(ids),
    padded_prompt=st.integers(0, 9),
    idle_slots=st.integers(0, 9),
    reasons=st.dictionaries(ids, st.text(max_size=5)),
)
progress = st.builds(
    ss.Progress,
    id=ids,
    arrival_ns=st.integers(0, 10**20),
    prompt_len=st.integers(1, 99),
    priority=st.integers(-3, 3),
    tenant=st.text(max_size=5),
    computed=st.integers(0, 99),
    produced=st.integers(0, 99),
    blocks=st.integers(0, 99),
    preemptions=st.integers(0, 9),
    predicted_output=st.none() | st.integers(1, 99),
)
views = st.builds(
    ss.View,
    clock_ns=st.integers(0, 10**20),
    step=st.integers(0, 99),
    waiting=st.lists(progress, max_size=4).map(Queue),
    running=st.lists(progress, max_size=4),
    free_blocks=st.integers(0, 10**15),
    total_blocks=st.integers(0, 10**15),
    block_size=st.integers(1, 99),
    reserve_all=st.booleans(),
    more_to_come=st.booleans(),
)


@given(plan=plans)
def test_any_plan_survives_json(plan):
    assert through_json(plan) == plan


@given(view=views)
@settings(max_examples=50)
def test_any_view_survives_json(view):
    copy = through_json(view)
    assert copy == view
    assert type(copy.waiting) is Queue
    for mine, its in zip(view.waiting, copy.waiting, strict=True):
        assert (its.total, its.missing, its.decoding) == (mine.total, mine.missing, mine.decoding)


def test_json_data_is_a_copy():
    view = ss.View(0, 0, Queue([ss.Progress(1, 0, 5)]), [], 9, 9, 16)
    data = view.to_json()
    data["waiting"][0]["computed"] = 3
    assert view.waiting[0].computed == 0


# --- the queue


@given(
    items=st.lists(st.integers(), max_size=6),
    start=st.none() | st.integers(-8, 8),
    stop=st.none() | st.integers(-8, 8),
    step=st.sampled_from([None, 1, 2, 3, -1, -2]),
)
def test_the_queue_is_sliced_like_a_list(items, start, stop, step):
    assert Queue(items)[start:stop:step] == items[start:stop:step]


def test_the_queue_is_indexed_like_a_list():
    queue = Queue("abc")
    assert (queue[0], queue[-1], len(queue)) == ("a", "c", 3)
    with pytest.raises(IndexError):
        queue[3]


def test_what_a_view_or_plan_is_made_from_stays_as_it_was():
    view = ss.View(0, 0, [ss.Progress(1, 0, 5)], [ss.Progress(2, 0, 5)], 9, 9, 16)
    for record in (view, ss.Plan([(1, 5)], reasons={2: "no room"})):
        data = record.to_json()
        assert json.loads(json.dumps(data)) == data
        assert type(record).from_json(data) == record
        assert data == record.to_json()


def test_a_plan_is_empty_unless_it_says_something():
    plan = ss.Plan()
    assert [plan.scheduled, plan.preempted, plan.rejected, plan.reasons] == [[], [], [], {}]
    switches = plan.decode_all, plan.wait, plan.repeatable, plan.until_arrival
    assert switches == (False,) * 4
    assert (plan.queue, plan.padded_prompt, plan.idle_slots) == (None, 0, 0)


@pytest.mark.parametrize("reserve_all", [False, True])
def test_a_view_takes_lists_and_keeps_what_it_need_not_turn_into_something_else(reserve_all):
    full = ss.Progress(2, 0, 16, computed=16, produced=1, blocks=1)
    view = ss.View(0, 0, [], [full], 9, 9, 16, reserve_all)
    assert view.running.blocks_to_decode == (0 if reserve_all else 1)
    same = ss.View(0, 0, view.waiting, view.running, 9, 9, 16)
    assert same.waiting is view.waiting
    assert same.running is view.running
    assert (same.reserve_all, same.more_to_come, same.holes) == (False, False, None)


# --- progress and blocks


def test_reserve_all_without_a_prediction_is_room_for_the_prompt():
    r = ss.Progress(0, 0, prompt_len=33)
    view = ss.View(0, 0, Queue([r]), [], 9, 9, 16, reserve_all=True)
    assert view.blocks_needed(r, 1) == 3
    assert view.blocks_needed(replace(r, prompt_len=32), 1) == 2
    # 16 + 18 - 1 tokens are one more than two blocks hold.
    assert view.blocks_needed(replace(r, prompt_len=16, predicted_output=18), 1) == 3
    assert view.blocks_needed(replace(r, prompt_len=16, predicted_output=17), 1) == 2


def test_in_a_contiguous_cache_who_outgrows_its_chunk_needs_a_whole_new_one():
    r = ss.Progress(0, 0, prompt_len=32, blocks=2)
    view = ss.View(0, 0, Queue([r]), [], 9, 9, 16, reserve_all=True, holes=[8])
    assert view.blocks_needed(r, 1) == 0
    assert view.blocks_needed(replace(r, prompt_len=33), 1) == 4
    assert view.blocks_needed(replace(r, blocks=0), 1) == 2


def test_one_rule_of_progress():
    r = ss.Progress(0, 0, prompt_len=10)
    assert (r.computed, r.produced, r.blocks, r.preemptions, r.predicted_output) == (
        0,
        0,
        0,
        0,
        None,
    )
    assert (r.priority, r.tenant) == (0, "")
    assert (r.total, r.missing, r.decoding) == (10, 10, False)
    r = replace(r, computed=9)
    assert (r.missing, r.decoding) == (1, False)  # the last of the prompt is no decode
    r = replace(r, computed=10, produced=1)
    assert (r.total, r.missing, r.decoding) == (11, 1, True)
    r = replace(r, computed=0)  # preempted: prompt and output have to be computed again
    assert (r.missing, r.decoding) == (11, False)
    assert everything([r]) == [(0, 11)]


@pytest.mark.parametrize(
    ("reserve_all", "computed", "blocks", "tokens", "needed"),
    [
        (False, 0, 0, 1, 1),
        (False, 0, 0, 16, 1),
        (False, 0, 0, 17, 2),
        (False, 15, 1, 1, 0),
        (False, 16, 1, 1, 1),
        (False, 16, 4, 1, 0),
        (True, 0, 0, 1, 2),  # 20 + 13 - 1 tokens
        (True, 0, 0, 20, 2),
        (True, 5, 2, 15, 0),
        (True, 31, 2, 1, 0),  # all that it was predicted to need, and one more
        (True, 32, 2, 1, 1),
    ],
)
def test_blocks_needed(reserve_all, computed, blocks, tokens, needed):
    r = ss.Progress(0, 0, 20, computed=computed, blocks=blocks, predicted_output=13)
    view = ss.View(0, 0, Queue([r]), [], 9, 9, 16, reserve_all=reserve_all)
    assert view.blocks_needed(r, tokens) == needed
