"""What must hold in every run, whatever the policy; and where each of these things is tested."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.cost import Work
from servesim.policies import (
    VLLM,
    Chunked,
    Continuous,
    Fair,
    Naive,
    Orca,
    PrefillFirst,
    Priority,
    Shedding,
    ShortestFirst,
    Static,
    StepTarget,
)
from tests import plain_loop, strategies

quick = settings(max_examples=80, derandomize=True, deadline=None)

WHERE = {
    "naive is Lindley's recursion": "test_policies.py::test_naive_is_lindley_s_recursion",
    "static by hand": (
        "test_policies.py::test_static_batches_run_one_after_the_other_padded_to_their_longest"
    ),
    "M/D/1 and M/G/1 within confidence bounds": (
        "test_validation.py::test_mean_wait_of_naive_serving"
    ),
    "Little's law, exactly": "test_engine.py::test_little_s_law_holds_exactly",
    "systems A and B, written anew in floats": (
        "test_systems.py::test_toy_agrees_with_the_oracle_at_any_size_and_seed"
    ),
    "a plain loop for all policies": (
        "test_invariants.py::test_a_plain_loop_gives_the_same_run_under_every_policy"
    ),
    "a plain loop for vLLM that imports nothing": (
        "test_skipping.py::test_the_plainest_loop_says_the_same"
    ),
    "steps skipped are steps taken": "test_skipping.py::test_skipping_is_stepping",
    "vLLM's own steps": "test_vllm_replay.py::test_replay_gives_the_recorded_steps",
    "the pool of blocks as a state machine": "test_kv.py::Pool",
    "the buddy allocator as a state machine": "test_paging.py::Buddy",
    "blocks are conserved": "test_paging.py::test_blocks_are_conserved_in_every_step",
    "tokens are conserved": "test_engine.py::test_every_token_but_the_last_is_computed_once",
    "no request is lost or doubled": "test_engine.py::test_no_request_is_lost_or_doubled",
    "first come, first served": (
        "test_policies.py::test_requests_are_first_scheduled_in_order_of_arrival"
    ),
    "the order within a tenant": (
        "test_invariants.py::test_within_a_tenant_nobody_is_overtaken_where_the_first_come_first"
    ),
    "clocks run forward, and all else that step records say": (
        "test_engine.py::test_the_step_records_add_up"
    ),
    "TTFT is at least queueing and the own prefill": (
        "test_invariants.py::test_a_first_token_takes_the_wait_and_the_own_prefill"
    ),
    "goodput is at most throughput": "test_metrics.py::test_definitions_hold_in_every_run",
    "percentiles rise": "test_metrics.py::test_percentiles_rise_with_p_and_stay_within_the_values",
    "equal arrivals in any order": (
        "test_invariants.py::test_the_order_of_equal_arrivals_is_of_no_account_where_ids_decide"
    ),
    "no makespan is below the bound": "test_bound.py::test_no_policy_beats_it",
    "any plan is carried out or told": (
        "test_bad_input.py::test_any_plan_is_carried_out_or_told_with_its_rule"
    ),
}
"""Each thing that must hold, and the test that looks at it over many runs."""


@pytest.mark.parametrize("what", WHERE)
def test_what_must_hold_is_tested(what):
    file, _, name = WHERE[what].partition("::")
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    assert f"def {name}(" in text or f"class {name}(" in text


@st.composite
def paged(draw):
    """Return requests of several tenants, any policy, and a server with paging."""
    requests, policy, options = draw(strategies.runs())
    kv = options["kv"]
    options["kv"] = ss.KVCache(kv.blocks, kv.block_size)
    return with_tenants(draw, requests), policy, options


def with_tenants(draw, requests):
    tenants = st.sampled_from(["", "chat", "bulk"])
    return [
        ss.Request(r.id, r.arrival_ns, r.prompt_len, r.output_len, r.priority, draw(tenants))
        for r in requests
    ]


@given(run=paged())
@settings(max_examples=200, derandomize=True, deadline=None)
def test_a_plain_loop_gives_the_same_run_under_every_policy(run):
    requests, policy, options = run
    result = ss.simulate(requests, policy, **options)
    times, totals = plain_loop.step_by_step(requests, policy, options["cost"], options["kv"])
    assert {r.request.id: list(r.token_times_ns()) for r in result.records} == times
    assert totals == {
        "steps": result.steps,
        "preemptions": result.preemptions,
        "peak": result.peak_blocks,
        "block_ns": result.block_ns,
        "running_ns": result.running_ns,
        "end": result.end_ns,
    }


@given(run=strategies.runs())
@quick
def test_a_first_token_takes_the_wait_and_the_own_prefill(run):
    requests, policy, options = run
    for record in ss.simulate(requests, policy, **options).records:
        p = record.request.prompt_len
        alone = Work(prefill_tokens=p, attention_pairs=p * p, longest_prefill=p)
        wait = record.first_scheduled_ns - record.request.arrival_ns
        assert wait >= 0
        assert record.ttft_ns >= wait + options["cost"].price_ns(alone)


FIRST_COME = (
    *(Naive(), Static(3), Continuous(), Continuous(2, prefill_alone=True), Chunked(20, 7)),
    *(Orca("max", max_len=80, max_running=3), PrefillFirst(20, 3), StepTarget(20, 3)),
    *(VLLM(8, 3), VLLM(20, long_prefill_token_threshold=7, watermark=0.1), Fair(16, 2)),
    Fair(16, 2, output_weight=0.0),
)
"""Policies under which nobody is overtaken by a later request of the same tenant."""


@given(run=strategies.runs(policies=st.sampled_from(FIRST_COME)), data=st.data())
@settings(max_examples=150, derandomize=True, deadline=None)
def test_within_a_tenant_nobody_is_overtaken_where_the_first_come_first(run, data):
    requests, policy, options = run
    numbered = [
        ss.Request(i, r.arrival_ns, r.prompt_len, r.output_len) for i, r in enumerate(requests)
    ]
    result = ss.simulate(with_tenants(data.draw, numbered), policy, **options)
    for records in result.by_tenant().values():
        starts = [r.first_scheduled_ns for r in records]
        assert starts == sorted(starts)


BY_ID = (
    *(Priority(16, 2), Priority(16, 2, patience_s=0), ShortestFirst(16, 2), Fair(16, 2)),
    *(ShortestFirst(16, 2, error=1.0), Shedding(16, 2, policy="priority")),
    VLLM(16, 2, policy="priority"),
)
"""Policies whose order ends with the id: who comes at one instant may be given in any order."""


@given(run=strategies.runs(policies=st.sampled_from(BY_ID)), data=st.data())
@settings(max_examples=150, derandomize=True, deadline=None)
def test_the_order_of_equal_arrivals_is_of_no_account_where_ids_decide(run, data):
    requests, policy, options = run
    tied = [ss.Request(r.id, r.arrival_ns // 10**8, r.prompt_len, r.output_len) for r in requests]
    mixed = sorted(data.draw(st.permutations(tied)), key=lambda r: r.arrival_ns)
    a, b = (ss.simulate(work, policy, **options) for work in (tied, mixed))
    assert {r.request.id: r for r in a.records} == {r.request.id: r for r in b.records}
    assert (a.end_ns, a.steps, a.preemptions) == (b.end_ns, b.steps, b.preemptions)
