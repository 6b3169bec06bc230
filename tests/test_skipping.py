"""Taking equal steps at once gives what stepping gives, digit for digit.

The definition is the plain loop: `skip=False`, every step planned and priced and every token given
on its own. Three more ways must agree with it: keeping every step on record; a policy that names
each decoding request in its plan; and a policy that lives behind JSON.
"""

import dataclasses
import json
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim import cost
from servesim.plan import Plan, View
from tests import plain_loop

PRICES = (
    cost.TOY,
    cost.SLOTS,
    cost.OPT_13B_A100,
    cost.Roofline(),
    cost.Affine(base_ms=1),
    cost.Affine(prefill_us=5, decode_us=7, context_ns=3),
    cost.Affine(),  # everything is free: no step takes any time
)


class Wrapped:
    """A policy around another one."""

    def __init__(self, policy):
        self.policy = policy
        self.knows_output_length = policy.knows_output_length
        self.reserve_all = policy.reserve_all
        if hasattr(policy, "predict"):
            self.predict = policy.predict


class Spelled(Wrapped):
    """Name everyone that decodes, and promise nothing."""

    def plan(self, view):
        plan = self.policy.plan(view)
        if not plan.decode_all:
            return plan
        gone = set(plan.preempted)
        decodes = [(r.id, 1) for r in view.running if r.decoding and r.id not in gone]
        return dataclasses.replace(
            plan, decode_all=False, repeatable=False, scheduled=decodes + plan.scheduled
        )


class Remote(Wrapped):
    """See and say everything through JSON."""

    def plan(self, view):
        copy = View.from_json(json.loads(json.dumps(view.to_json())))
        assert copy == view
        plan = self.policy.plan(copy)
        again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
        assert again == plan
        return again


def outcome(requests, policy, **options):
    """Everything a run says, but for how often the policy was asked."""
    try:
        result = ss.simulate(requests, policy, **options)
    except ss.PlanError as error:
        return str(error)
    said = {
        f.name: getattr(result, f.name)
        for f in dataclasses.fields(result)
        if f.name not in ("policy", "token_budget", "records", "step_records", "engine_iterations")
    }
    said["records"] = [(dataclasses.astuple(r)[:7], r.gaps.runs) for r in result.records]
    said["token times"] = [list(r.token_times_ns()) for r in result.records]
    pooled, own = Counter(), Counter()
    for gap, count in result.records.gap_counts():
        pooled[gap] += count
    for record in result.records:
        own.update(record.gaps)
    assert pooled == own
    said["itl"] = pooled
    figures = result.summary(ss.SLO(500, 50))
    said["summary"] = {k: v for k, v in figures.items() if k not in ("policy", "engine_iterations")}
    return said


def policies():
    some = st.integers
    return st.one_of(
        st.just(ss.policies.Naive()),
        st.builds(ss.policies.Static, some(1, 8)),
        st.builds(ss.policies.Continuous, st.none() | some(1, 5), st.booleans(), st.booleans()),
        st.builds(
            ss.policies.Chunked,
            token_budget=st.none() | some(1, 64),
            chunk=st.none() | some(1, 30),
            max_running=st.none() | some(1, 6),
        ),
        st.builds(ss.policies.PrefillFirst, some(1, 300), some(1, 8)),
        st.builds(ss.policies.Orca, st.sampled_from(("oracle", "pow2"))),
        st.builds(
            ss.policies.VLLM,
            max_num_batched_tokens=st.sampled_from((1, 2, 16, 64, 512)),
            max_num_seqs=st.sampled_from((1, 3, 50)),
            long_prefill_token_threshold=st.sampled_from((0, 0, 10)),
            enable_chunked_prefill=st.booleans(),
            policy=st.sampled_from(("fcfs", "priority")),
            scheduler_reserve_full_isl=st.booleans(),
            watermark=st.sampled_from((0.0, 0.1)),
            release=st.sampled_from(("0.11.2", "0.33.0")),
        ),
        designs(),
    )


def designs():
    """The policies that build on vLLM's."""
    floats = st.sampled_from
    vllm = {
        "max_num_batched_tokens": st.sampled_from((2, 16, 64, 512)),
        "max_num_seqs": st.sampled_from((1, 3, 50)),
        "enable_chunked_prefill": st.booleans(),
        "policy": st.sampled_from(("fcfs", "priority")),
        "scheduler_reserve_full_isl": st.booleans(),
        "release": st.sampled_from(("0.11.2", "0.33.0")),
    }
    return st.one_of(
        st.builds(ss.policies.Priority, patience_s=floats((0, 0.1, 60)), **vllm),
        st.builds(ss.policies.ShortestFirst, error=floats((0.0, 1.0)), **vllm),
        st.builds(ss.policies.Fair, **vllm),
        st.builds(
            ss.policies.StepTarget,
            target_ms=floats((1, 20, 30, 100)),
            prices=st.sampled_from(PRICES[:4]),
            **vllm,
        ),
        st.builds(ss.policies.Shedding, patience_s=floats((0, 0.01, 0.3, 2)), **vllm),
    )


@st.composite
def runs(draw):
    """A workload, a policy and options; arrivals often fall exactly on the end of a step."""
    grid = draw(st.sampled_from((1, 700_000, 1_000_000, 100_000_000)))
    clock, requests = 0, []
    for i in range(draw(st.integers(1, 14))):
        clock += grid * draw(st.integers(0, 60))
        requests.append(
            ss.Request(
                i,
                clock,
                draw(st.integers(1, 90)),
                draw(st.integers(1, 90)),
                draw(st.integers(0, 2)),
                draw(st.sampled_from("ab")),
            )
        )
    size = draw(st.sampled_from((1, 4, 16)))
    largest = max(-(-(r.prompt_len + r.output_len) // size) for r in requests)
    blocks = draw(st.none() | st.integers(1, 3 * largest).map(lambda extra: largest + extra))
    options = {
        "cost": draw(st.sampled_from(PRICES)),
        "kv": ss.KVCache(blocks, size, null_block=blocks is not None and draw(st.booleans())),
        "count_first_token": draw(st.booleans()),
        "max_model_len": draw(st.sampled_from((None, None, 100))),
        "max_steps": draw(st.sampled_from((None, None, None, 40))),
        "never_fits": "reject",
    }
    return requests, draw(policies()), options


ONE_LEFT = (  # a recomputation that ends one token short, which then decodes with the others
    [ss.Request(0, 0, 3, 40), ss.Request(1, 0, 5, 40), ss.Request(2, 0, 4, 40)],
    ss.policies.VLLM(max_num_batched_tokens=4, max_num_seqs=4),
    {"cost": cost.TOY, "kv": ss.KVCache(14, 4), "never_fits": "reject"},
)

UNCOUNTED = (  # a prompt that ends in the step from which on steps are skipped: its output counts
    [
        *(ss.Request(0, 0, 1, 20, tenant="b"), ss.Request(1, 0, 8, 20, tenant="a")),
        *(ss.Request(2, 8_000_000, 4, 1, tenant="a"), ss.Request(3, 8_000_000, 4, 1, tenant="b")),
    ],
    ss.policies.Fair(max_num_batched_tokens=4, max_num_seqs=2),
    {"cost": cost.Affine(base_ms=1)},
)


@settings(max_examples=200)
@example(ONE_LEFT)
@example(UNCOUNTED)
@given(runs())
def test_skipping_is_stepping(case):
    requests, policy, options = case
    stepping = outcome(requests, policy, skip=False, **options)
    assert outcome(requests, policy, **options) == stepping


@settings(max_examples=100)
@example(ONE_LEFT)
@given(runs())
def test_other_ways_to_say_the_same(case):
    requests, policy, options = case
    stepping = outcome(requests, policy, skip=False, **options)
    assert outcome(requests, policy, record_steps=True, **options) == stepping
    assert outcome(requests, Spelled(policy), **options) == stepping
    assert outcome(requests, Remote(policy), **options) == stepping


@pytest.mark.parametrize(
    ("name", "questions"),
    # One for each that arrives, as hardly anybody waits, and no finish is a reason to ask. A
    # second for a prompt in two chunks, or after a step for prompts only.
    [("continuous", 1), ("orca", 1), ("vllm", 1), ("chunked", 2), ("prefill_first", 2)],
)
def test_few_questions_are_asked(name, questions):
    requests = ss.workload.poisson(n=200, rate=2, prompt=512, output=128, seed=0)
    policy = ss.policies.BUILT_IN[name]()
    result = ss.simulate(requests, policy, cost=cost.TOY, kv=ss.KVCache(4000))
    assert result.engine_iterations <= (questions + 0.05) * len(requests)
    assert result.steps > 20 * result.engine_iterations


class Counting:
    """A subclass's plan: what it counts at each call must not depend on skipping."""

    def plan(self, view):
        before, running = getattr(self, "last", (0, []))
        self.tokens = getattr(self, "tokens", 0) + len(running) * (view.step - before)
        plan = super().plan(view)
        self.last = view.step, [r for r in view.running if r.decoding]
        self.told.append(self.tokens)
        plan.repeatable &= not view.waiting  # it counts those who run, not those who join
        return plan


@pytest.mark.parametrize("base", [ss.policies.VLLM, ss.policies.Chunked, ss.policies.Continuous])
def test_a_subclass_that_counts_is_asked_after_each_finish(base):
    requests = [ss.Request(0, 0, 5, 4), ss.Request(1, 0, 5, 30), ss.Request(2, 10**9, 5, 2)]
    counted = {}
    for skip in (True, False):
        told = counted[skip] = Told()
        policy = type("Mine", (Counting, base), {"told": told})()
        ss.simulate(requests, policy, skip=skip)
    assert counted[True][-1] == counted[False][-1] == 3 + 29  # and the last prompt's step


class Picky(ss.policies.PrefillFirst):
    """Admits by how many run, and notes no reason why somebody waits."""

    def joining(self, step):
        return super().joining(step)[:1] if step.size < 2 else []


def test_no_finish_is_skipped_over_while_somebody_waits():
    requests = [ss.Request(i, 0, 4, 9 if i == 1 else 3) for i in range(4)]
    assert outcome(requests, Picky()) == outcome(requests, Picky(), skip=False)


class Told(list):
    """What a policy says, kept although the engine copies the policy."""

    def __deepcopy__(self, memo):
        return self


def test_arrivals_by_step_are_not_skipped_over():
    requests = [ss.Request(0, 0, 5, 50), ss.Request(1, 20, 5, 5), ss.Request(2, 90, 5, 5)]
    for policy in (ss.policies.VLLM(), ss.policies.Continuous()):
        fast = outcome(requests, policy, arrivals_by_step=True)
        assert fast == outcome(requests, policy, arrivals_by_step=True, skip=False)


def test_a_promise_that_does_not_hold_is_the_policys_own():
    """The engine takes the policy's word; the default is not to promise."""
    assert not ss.Plan([(0, 1)]).repeatable


@pytest.mark.parametrize(("rate", "blocks"), [(1, 4000), (6, 4000), (6, 90), (40, 130)])
@pytest.mark.parametrize("name", ["toy", "affine"])
def test_the_plainest_loop_says_the_same(rate, blocks, name):
    prices, cheap = {
        "toy": (cost.TOY, plain_loop.Prices(200_000, 40_000, 500_000)),
        "affine": (
            cost.Affine(5, 30, 20, context_ns=900, decode_step_ms=2),
            plain_loop.Prices(5_000_000, 30_000, 20_000, 2_000_000, 900),
        ),
    }[name]
    requests = ss.workload.poisson(n=120, rate=rate, prompt=(20, 900), output=(1, 150), seed=rate)
    times, steps = plain_loop.run(requests, cheap, blocks)
    result = ss.simulate(requests, ss.policies.VLLM(), cost=prices, kv=ss.KVCache(blocks))
    assert {r.request.id: list(r.token_times_ns()) for r in result.records} == times
    assert result.steps == steps
    assert (result.preemptions > 0) is (blocks < 200)
