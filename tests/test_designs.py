"""The policies of the chapter on design: priority, shortest first, fair, step target, shedding."""

import ast
import inspect
import itertools
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim import cost
from servesim.cost import Work
from servesim.engine import Engine
from servesim.policies import (
    VLLM,
    Fair,
    Priority,
    Shedding,
    ShortestFirst,
    StepTarget,
)
from servesim.request import NS_PER_MS, NS_PER_S
from tests.strategies import prices, workloads

quick = settings(max_examples=30, derandomize=True, deadline=None)
DESIGNS = (Priority, ShortestFirst, Fair, StepTarget, Shedding)
TENANTS = st.sampled_from(("a", "b", "c"))


def labeled(requests, tenants):
    return [ss.Request(r.id, r.arrival_ns, r.prompt_len, r.output_len, r.priority, tenant)
            for r, tenant in zip(requests, itertools.cycle(tenants))]  # fmt: skip


def at_once(*lengths, **more):
    return [ss.Request(i, 0, prompt, output, **more) for i, (prompt, output) in enumerate(lengths)]


def lines_of_policy(cls):
    """Count the lines of the methods that decide: no headers, docstrings or checks of options."""
    (body,) = ast.parse(inspect.getsource(cls)).body
    count = 0
    for method in body.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__post_init__":
            statements = method.body[ast.get_docstring(method) is not None :]
            count += sum(s.end_lineno - s.lineno + 1 for s in statements)
    return count


@pytest.mark.parametrize("cls", DESIGNS)
def test_a_design_decides_in_twenty_lines(cls):
    assert 0 < lines_of_policy(cls) <= 20


@pytest.mark.parametrize(
    ("cls", "option"),
    [
        (Priority, "patience_s"),
        (ShortestFirst, "error"),
        (Fair, "output_weight"),
        (StepTarget, "target_ms"),
        (Shedding, "patience_s"),
    ],
)
@pytest.mark.parametrize("bad", [-1, math.inf, math.nan, "2", True, None])
def test_an_option_is_a_number_from_zero(cls, option, bad):
    with pytest.raises(ss.InputError, match=f"{option} must be a number, 0 or more, not"):
        cls(**{option: bad})


def test_other_options():
    with pytest.raises(ss.InputError, match="seed"):
        ShortestFirst(seed=-1)
    with pytest.raises(ss.InputError, match="prices must be an object with a method price_ns"):
        StepTarget(prices=7)
    with pytest.raises(ss.InputError, match="max_num_seqs"):
        Fair(max_num_seqs=0)
    assert repr(Fair()) == "Fair()"
    assert repr(Shedding(512, patience_s=2)) == "Shedding(max_num_batched_tokens=512, patience_s=2)"


# --- priority


@given(requests=workloads(), cost=prices)
@quick
def test_without_patience_it_is_first_come_first_served(requests, cost):
    ours = ss.simulate(requests, Priority(16, 3, patience_s=0), cost=cost)
    plain = [ss.Request(r.id, r.arrival_ns, r.prompt_len, r.output_len) for r in requests]
    ranks = {r.id: i for i, r in enumerate(sorted(plain, key=lambda r: (r.arrival_ns, r.id)))}
    fcfs = ss.simulate(sorted(plain, key=lambda r: ranks[r.id]), VLLM(16, 3), cost=cost)
    times = {r.request.id: list(r.token_times_ns()) for r in fcfs.records}
    assert {r.request.id: list(r.token_times_ns()) for r in ours.records} == times


@given(requests=workloads(), cost=prices)
@quick
def test_with_endless_patience_it_is_strict(requests, cost):
    numbered = [
        ss.Request(i, r.arrival_ns + i, r.prompt_len, r.output_len, r.priority)
        for i, r in enumerate(requests)
    ]  # vLLM sorts equal arrivals by the id as text
    strict = ss.simulate(numbered, VLLM(16, 3, policy="priority"), cost=cost)
    ours = ss.simulate(numbered, Priority(16, 3, patience_s=10**6), cost=cost)
    assert ours.records == strict.records


@given(requests=workloads(), patience=st.sampled_from((0, 0.001, 0.07, 1, 3)))
@quick
def test_nobody_is_overtaken_by_who_comes_later_than_the_patience(requests, patience):
    def moved(r):
        return r.arrival_ns + r.priority * round(patience * NS_PER_S), r.id

    result = ss.simulate(requests, Priority(16, 2, patience_s=patience))
    for a, b in itertools.permutations(result.records, 2):
        both_waited = a.request.arrival_ns <= b.first_scheduled_ns
        if moved(a.request) < moved(b.request) and both_waited:
            assert a.first_scheduled_ns <= b.first_scheduled_ns


def test_strict_priorities_starve_and_patience_does_not():
    """A stream of urgent requests, more than one place can serve, and one that is not urgent."""
    urgent = [ss.Request(i, i * NS_PER_S, 10, 60) for i in range(1, 61)]
    requests = [ss.Request(0, 0, 10, 60), ss.Request(99, 1, 10, 60, priority=1), *urgent]
    strict, patient = (
        ss.simulate(requests, policy)
        for policy in (VLLM(512, 1, policy="priority"), Priority(512, 1, patience_s=5))
    )
    wait = {r.policy: (r.records[1].first_scheduled_ns - 1) / NS_PER_S for r in (strict, patient)}
    assert (
        wait[strict.policy] == max(r.first_scheduled_ns for r in strict.records) / NS_PER_S - 1e-9
    )
    assert wait[patient.policy] < 5 * 1.3 + 2


# --- shortest first


def test_served_alone_shortest_first_has_the_least_mean_time():
    lengths = [(5, 9), (5, 2), (5, 30), (5, 4), (5, 17)]
    ours = ss.simulate(at_once(*lengths), ShortestFirst(512, 1)).e2e_ms.mean
    others = []
    for order in itertools.permutations(range(5)):
        ranked = [ss.Request(i, 0, *lengths[i], order[i]) for i in range(5)]
        run = ss.simulate(ranked, VLLM(512, 1, policy="priority"))
        others.append(run.e2e_ms.mean)
    assert ours == min(others)
    assert max(others) > 1.5 * ours


def test_a_long_request_starves_behind_short_ones():
    short = [ss.Request(i, i * NS_PER_S, 10, 60) for i in range(1, 40)]
    requests = [ss.Request(0, 0, 10, 60), ss.Request(99, 1, 10, 61), *short]
    result = ss.simulate(requests, ShortestFirst(512, 1))
    assert max(result.records, key=lambda r: r.first_scheduled_ns).request.id == 99
    assert result.told_output_length


def test_what_counts_is_what_is_left_to_produce():
    """A long answer that was preempted near its end goes before a short one."""
    nearly = ss.Progress(0, 5, 10, produced=90, predicted_output=100)
    short = ss.Progress(1, 0, 10, predicted_output=20)
    beyond = ss.Progress(2, 0, 10, produced=9, predicted_output=5)
    queue = ShortestFirst().in_order([short, nearly, beyond])
    assert [r.id for r in queue] == [2, 0, 1]


def test_one_token_left_goes_before_two():
    two = ss.Progress(0, 0, 10, produced=3, predicted_output=5)
    one = ss.Progress(1, 5, 10, produced=4, predicted_output=5)
    assert [r.id for r in ShortestFirst().in_order([two, one])] == [1, 0]


def test_without_predictions_it_is_first_come_first_served():
    later, first = ss.Progress(0, 5, 10, produced=1), ss.Progress(1, 0, 10)
    assert [r.id for r in ShortestFirst().in_order([later, first])] == [1, 0]


@given(prompt=st.integers(1, 5000), output=st.integers(1, 5000), seed=st.integers(0, 50))
@quick
def test_a_prediction_is_a_length_and_always_the_same(prompt, output, seed):
    assert ShortestFirst().predict(prompt, output) == output
    policy = ShortestFirst(error=2.0, seed=seed)
    predicted = policy.predict(prompt, output)
    assert type(predicted) is int
    assert predicted >= 1
    assert predicted == ShortestFirst(error=2.0, seed=seed).predict(prompt, output)
    assert ShortestFirst(error=1e9).predict(prompt, output) >= 1


def test_predictions_are_as_wrong_as_they_claim():
    policy = ShortestFirst(error=0.7, seed=3)
    logs = [math.log(policy.predict(prompt, 10_000) / 10_000) for prompt in range(1, 2001)]
    assert abs(statistics.fmean(logs)) < 4 * 0.7 / math.sqrt(2000)
    assert abs(statistics.pstdev(logs) - 0.7) < 4 * 0.7 / math.sqrt(4000)
    other = ShortestFirst(error=0.7, seed=4)
    assert other.predict(1, 10_000) != policy.predict(1, 10_000)


# --- fair


def counted(result, weight):
    """Yield, from the steps alone, what each tenant was served and who waits after each step."""
    requests = {r.request.id: r.request for r in result.records}
    served, seen = dict.fromkeys((r.tenant for r in requests.values()), 0.0), set()
    for step in result.step_records:
        for s in step.scheduled:
            r = requests[s.id]
            if s.id not in seen:
                seen.add(s.id)
                served[r.tenant] += r.prompt_len
            served[r.tenant] += weight * s.decode
        yield dict(served), {requests[rid].tenant for rid in step.waiting}


@given(
    first=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=8, max_size=25),
    second=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=8, max_size=25),
    places=st.integers(1, 4),
)
@quick
def test_two_who_both_wait_are_served_alike(first, second, places):
    """The bound of Sheng et al.: twice the larger of a prompt and a full batch's output tokens."""
    requests = labeled(at_once(*first, *second), ["a"] * len(first) + ["b"] * len(second))
    result = ss.simulate(requests, Fair(512, places), record_steps=True)
    longest = max(r.prompt_len for r in requests)
    whole_answers = places * max(r.output_len for r in requests)  # a batch is not preempted
    for served, waits in counted(result, 2):
        if waits == {"a", "b"}:
            assert abs(served["a"] - served["b"]) <= 2 * max(longest, 2 * whole_answers)


def test_first_come_first_served_breaks_that_bound():
    requests = labeled(at_once(*[(50, 50)] * 60), ["a"] * 30 + ["b"] * 30)
    for policy, breaks in ((VLLM(512, 1), True), (Fair(512, 1), False)):
        gaps = [
            abs(served["a"] - served["b"])
            for served, waits in counted(ss.simulate(requests, policy, record_steps=True), 2)
            if waits == {"a", "b"}
        ]
        assert (max(gaps) > 2 * 2 * 50) is breaks


@given(requests=workloads(), tenants=st.lists(TENANTS, min_size=1, max_size=5))
@quick
def test_its_counters_are_what_was_served(requests, tenants):
    """Apart from the lift of those who come back, which only ever adds."""
    requests = labeled(requests, tenants)
    engine = Engine(requests, Fair(16, 3), record_steps=True)
    result = engine.run()
    *_, (served, _) = counted(result, 2)
    last = result.step_records[-1]
    for tenant, amount in served.items():
        ours = engine.policy.served[tenant]
        pending = 2 * sum(s.decode for s in last.scheduled)  # the last step is never looked back on
        assert ours >= amount - pending
        if len(set(tenants)) == 1:
            assert ours <= amount


def test_the_output_of_steps_taken_at_once_is_counted_at_the_next_plan():
    policy = Fair(output_weight=1.5)
    for step, served in ((0, 0), (7, 1.5 * 7), (8, 1.5 * 8)):
        decodes = ss.Progress(0, 0, 5, computed=5 + step, produced=1 + step, blocks=9, tenant="a")
        policy.plan(ss.View(step, step, [], [decodes], 9, 18, 4))
        assert policy.served["a"] == served


def test_idle_time_is_not_saved_up():
    """b comes back after a long pause: from then on both get the same, not b everything."""
    early = [ss.Request(i, 0, 20, 20, tenant="a") for i in range(40)]
    late = [ss.Request(40 + i, 5 * NS_PER_S, 20, 20, tenant="b") for i in range(20)]
    result = ss.simulate([*early, *late], Fair(512, 1), record_steps=True)
    since = [(s, w) for (s, w), step in zip(counted(result, 2), result.step_records, strict=True)
             if step.start_ns >= 5 * NS_PER_S]  # fmt: skip
    both = [s for s, waits in since if waits == {"a", "b"}]
    gained = {t: both[-1][t] - both[0][t] for t in "ab"}
    assert len(both) > 100
    assert abs(gained["a"] - gained["b"]) <= 4 * 20 * 2


def test_idle_time_is_not_saved_up_while_all_are_idle():
    """As above, but the server was empty when b came, and a is back a moment later."""
    early = [ss.Request(i, 0, 20, 20, tenant="a") for i in range(40)]
    after = NS_PER_S + ss.simulate(early, VLLM(512, 1)).end_ns
    crowd = [ss.Request(40 + i, after, 20, 20, tenant="b") for i in range(40)]
    back = ss.Request(99, after + 1, 20, 20, tenant="a")
    result = ss.simulate([*early, *crowd, back], Fair(512, 1))
    begun = sorted(result.records, key=lambda r: r.first_scheduled_ns or 0)
    assert [r.request.id for r in begun].index(99) <= 40 + 2


def waits(rid, prompt, tenant, **more):
    return ss.Progress(rid, rid, prompt, tenant=tenant, **more)


def decodes(rid, tenant, cached=9):
    """Return one with a token, and blocks of four tokens each."""
    blocks = -(-cached // 4)
    return ss.Progress(rid, rid, cached, computed=cached, produced=1, blocks=blocks, tenant=tenant)


def after(policy, step, waiting, running=(), free=900):
    """Return the plan, and what the tenants were served after it."""
    view = ss.View(10**9, step, list(waiting), list(running), free, 999, 4)
    return policy.plan(view), dict(policy.served)


@pytest.mark.parametrize(("left", "floor"), [(("a", "b"), 100), (("b",), 300)])
def test_who_comes_later_starts_level_with_the_least_served_of_those_still_here(left, floor):
    policy = Fair()
    _, served = after(policy, 0, [waits(0, 100, "a"), waits(1, 300, "b")])
    assert served == {"a": 100, "b": 300}
    running = [decodes(i, tenant) for i, tenant in enumerate(left)]
    _, served = after(policy, 1, [waits(2, 7, "c")], running)
    assert served == {"a": 100, "b": 300, "c": floor + 7}


def test_who_is_let_in_again_has_had_its_prompt_counted():
    _, served = after(Fair(), 0, [waits(0, 100, "a", produced=3, preemptions=1)])
    assert served == {"a": 0}


def test_who_is_thrown_out_gets_no_token_in_that_step():
    policy = Fair()
    plan, _ = after(policy, 0, [], [decodes(0, "a", 8), decodes(1, "b", 8)], free=0)
    assert plan.preempted == [1]
    _, served = after(policy, 1, [], [decodes(0, "a")])
    assert served == {"a": 2, "b": 0}


def test_a_plan_in_which_a_prompt_ends_is_not_repeated_for_then_its_output_counts():
    last = ss.Progress(0, 0, 9, computed=4, blocks=1, tenant="a")
    for policy, repeats in ((VLLM(), True), (Fair(), False)):
        view = ss.View(10**9, 1, [], [last], 900, 999, 4)
        assert policy.plan(view).repeatable is repeats


def test_tenants_who_were_served_alike_take_turns():
    crowd = [waits(0, 10, "a"), waits(1, 10, "a"), waits(2, 10, "b")]
    assert [r.id for r in Fair().in_order(crowd)] == [0, 2, 1]


def test_a_crowd_does_not_hold_up_a_neighbor():
    crowd = [ss.Request(i, 0, 50, 50, tenant="crowd") for i in range(30)]
    neighbor = ss.Request(99, NS_PER_S, 50, 50, tenant="neighbor")
    wait = {
        type(policy): ss.simulate([*crowd, neighbor], policy).records[-1].ttft_ns
        for policy in (VLLM(512, 2), Fair(512, 2))
    }
    assert wait[Fair] < wait[VLLM] / 5


@given(requests=workloads(), cost=prices)
@quick
def test_with_one_tenant_it_is_first_come_first_served(requests, cost):
    ordered = [
        ss.Request(i, r.arrival_ns, r.prompt_len, r.output_len) for i, r in enumerate(requests)
    ]
    plain = ss.simulate(ordered, VLLM(16, 3), cost=cost)
    assert ss.simulate(ordered, Fair(16, 3), cost=cost).records == plain.records


# --- step target


def decodes_alone_ns(step, price):
    return price.price_ns(Work(decodes=step.work.decodes, context_tokens=step.work.context_tokens))


@pytest.mark.parametrize(
    "price",
    [cost.OPT_13B_A100, cost.Roofline(), cost.Affine(2, 30, 20, attention_ps=900)],
    ids=repr,
)
@pytest.mark.parametrize("target_ms", [25, 40, 100])
def test_no_step_is_longer_than_its_target(price, target_ms):
    requests = ss.workload.poisson(60, 3, "azure_conv", (10, 80), seed=target_ms)
    policy = StepTarget(4096, target_ms=target_ms, prices=price)
    result = ss.simulate(requests, policy, cost=price, record_steps=True)
    assert len(result.finished) == 60
    for step in result.step_records:
        forced = (
            step.work.prefill_tokens <= 1 or decodes_alone_ns(step, price) > target_ms * NS_PER_MS
        )
        assert forced or step.cost_ns <= target_ms * NS_PER_MS


def test_a_step_is_as_full_as_the_target_allows():
    price = cost.Affine(base_ms=5, prefill_us=100)
    result = ss.simulate(
        at_once((1000, 2)), StepTarget(target_ms=30, prices=price), cost=price, record_steps=True
    )
    assert [s.work.prefill_tokens for s in result.step_records] == [250, 250, 250, 250, 0]
    capped = ss.simulate(
        at_once((1000, 2)), StepTarget(200, target_ms=30, prices=price), record_steps=True
    )
    assert {s.work.prefill_tokens for s in capped.step_records} == {200, 0}


def test_an_impossible_target_still_lets_prompts_go_on():
    result = ss.simulate(at_once((9, 3), (9, 3)), StepTarget(target_ms=0), record_steps=True)
    assert len(result.finished) == 2
    assert max(s.work.prefill_tokens for s in result.step_records) == 1


@pytest.mark.parametrize("done", [0, 5])
def test_a_target_counts_the_pairs_with_what_is_in_the_cache(done):
    """A price for pairs only, and a target that ten tokens meet to the nanosecond."""
    price = cost.Affine(attention_ps=1000 * NS_PER_MS)  # a millisecond each
    r = ss.Progress(0, 0, 99, computed=done, blocks=done)
    running, waiting = ([r], []) if done else ([], [r])
    view = ss.View(0, 1, waiting, running, 99, 99, 1)
    for target_ms, tokens in ((10 * (10 + 2 * done), 10), (10 * (10 + 2 * done) - 1, 9)):
        plan = StepTarget(target_ms=target_ms, prices=price).plan(view)
        assert plan.scheduled == [(0, tokens)]


# --- shedding


@given(requests=workloads(), patience=st.sampled_from((0, 0.01, 0.1, 1)), cost=prices)
@quick
def test_who_is_served_began_in_time_and_who_is_not_waited_too_long(requests, patience, cost):
    result = ss.simulate(requests, Shedding(16, 2, patience_s=patience), cost=cost)
    assert result.outcome == "completed"
    for r in result.records:
        assert r.status in ("finished", "rejected")
        if r.status == "finished":
            assert r.first_scheduled_ns - r.request.arrival_ns <= patience * NS_PER_S
        else:
            assert r.first_token_ns is None
            assert r.output_tokens == 0


@given(requests=workloads(), cost=prices)
@quick
def test_with_endless_patience_nobody_is_turned_away(requests, cost):
    plain = ss.simulate(requests, VLLM(16, 2), cost=cost)
    ours = ss.simulate(requests, Shedding(16, 2, patience_s=10**6), cost=cost)
    assert ours.records == plain.records


def test_shedding_keeps_the_rest_in_time():
    requests = ss.workload.poisson(150, 4, 256, (50, 150), seed=1)
    slo = ss.SLO(2000, 200)
    plain, shed = (
        ss.simulate(requests, policy) for policy in (VLLM(512, 8), Shedding(512, 8, patience_s=1.5))
    )
    assert shed.attainment(slo) > 1.5 * plain.attainment(slo)
    assert shed.count("rejected") > 10
    assert shed.ttft_ms.max < 2000


def test_the_p99_of_a_promise_counts_who_was_turned_away():
    """A server that serves three of 150 in time and nobody else keeps no promise."""
    requests = at_once(*[(20, 5)] * 150)
    for served, kept in ((3, False), (148, False), (149, True), (150, True)):

        class Door:
            size = served

            def plan(self, view):
                if view.running:
                    return ss.Plan(decode_all=True)
                crowd = [r.id for r in view.waiting]
                inside = [(rid, 20) for rid in crowd[: self.size]]
                return ss.Plan(inside, rejected=crowd[self.size :])

        result = ss.simulate(requests, Door())
        assert result.count("finished") == served
        assert result.p99_within(ss.SLO(1000, 1000)) is kept
        assert result.ttft_ms.percentile(99) < 1000


# --- fairness, tenants, merging


# A quarter of the smallest numbers there are would be nothing at all.
AMOUNTS = st.just(0.0) | st.floats(1e-300, 1e300)


@given(amounts=st.lists(AMOUNTS, min_size=1, max_size=30))
@quick
def test_jains_index_lies_between_one_of_n_and_one(amounts):
    index = ss.metrics.jain_index(amounts)
    assert 1 / len(amounts) - 1e-9 <= index <= 1 + 1e-9
    assert index == pytest.approx(ss.metrics.jain_index(reversed(amounts)))
    assert ss.metrics.jain_index([v * 0.25 for v in amounts]) == pytest.approx(index)


@given(n=st.integers(1, 40), k=st.integers(1, 40), value=st.floats(1e-300, 1e300))
@quick
def test_jains_index_is_the_share_of_those_who_get_the_same(n, k, value):
    assert ss.metrics.jain_index([value] * k + [0] * n) == pytest.approx(k / (n + k))
    assert ss.metrics.jain_index([0] * n) == 1


def test_jains_index_by_hand():
    assert ss.metrics.jain_index([1, 3]) == pytest.approx(16 / 20)
    assert ss.metrics.jain_index([0, ss.metrics.MOST_AMOUNT]) == 0.5


@pytest.mark.parametrize("bad", [[], [1, -1], [math.nan], [math.inf]])
def test_jains_index_of_what_is_no_amount(bad):
    with pytest.raises(ss.InputError, match="jain_index: give one or more amounts"):
        ss.metrics.jain_index(bad)


def test_tenants_are_merged_in_order_of_arrival():
    chat = ss.workload.poisson(20, 2, 10, 10, seed=1)
    bulk = ss.workload.gamma(30, 3, 2, 99, 5, seed=2)
    merged = ss.workload.merge({"chat": chat, "bulk": iter(bulk)}, {"bulk": 1})
    assert [r.id for r in merged] == list(range(50))
    assert [r.arrival_ns for r in merged] == sorted(r.arrival_ns for r in [*chat, *bulk])
    assert {(r.tenant, r.priority, r.prompt_len) for r in merged} == {
        ("chat", 0, 10),
        ("bulk", 1, 99),
    }
    twice = ss.workload.merge({"x": at_once((1, 1)), "y": at_once((2, 2))})
    assert [r.tenant for r in twice] == ["x", "y"]
    result = ss.simulate(merged, VLLM())
    assert {t: len(records) for t, records in result.by_tenant().items()} == {
        "chat": 20,
        "bulk": 30,
    }
    with pytest.raises(ss.InputError, match="there is no tenant 'code', only chat, bulk"):
        ss.workload.merge({"chat": chat, "bulk": bulk}, {"code": 1})


def test_who_is_turned_away_is_told_why():
    result = ss.simulate(
        at_once((5, 30), (5, 2)), Shedding(512, 1, patience_s=0.1), record_steps=True
    )
    assert [r.request.id for r in result.rejected] == [1]
    (step,) = [step for step in result.step_records if step.rejected]
    assert step.rejected == [1]
    assert {**step.paused, **step.reasons}[1] == "turned away: late"


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("skip", [True, False])
def test_who_is_late_and_thrown_out_of_its_prompt_is_turned_away_in_the_next_step(policy, skip):
    """It waits from then on: in the step that throws it out, it must still be in the queue."""
    requests = [ss.Request(0, 0, 8, 60), ss.Request(1, 0, 400, 3, priority=1)]
    result = ss.simulate(
        requests,
        Shedding(10, policy=policy, patience_s=0.05, scheduler_reserve_full_isl=False),
        cost=cost.Affine(base_ms=50),
        kv=ss.KVCache(30, 4),
        never_fits="try",
        skip=skip,
    )
    assert [r.status for r in result.records] == ["finished", "rejected"]
    assert result.records[1].preemptions == 1


def test_who_is_late_leaves_a_queue_that_is_put_in_order():
    """The older release without chunks puts those whom it skips first: not the late one."""
    policy = Shedding(8, enable_chunked_prefill=False, release="0.11.2", patience_s=1)
    clock_ns = 3 * NS_PER_S
    waiting = [ss.Progress(i, at, prompt) for i, at, prompt in
               ((1, clock_ns, 9), (2, 0, 3), (3, clock_ns, 3), (4, clock_ns, 9))]  # fmt: skip
    plan = policy.plan(ss.View(clock_ns, 1, waiting, [], 99, 99, 4))
    assert plan.scheduled == [(3, 3)]
    assert plan.rejected == [2]
    assert plan.queue == [4, 1]


# --- what they promise


@pytest.mark.parametrize("cls", [VLLM, Fair, StepTarget, Shedding])
def test_a_plan_that_time_or_the_queue_may_change_is_not_repeatable(cls):
    decodes = ss.Progress(0, 0, 5, computed=5, produced=1, blocks=2)
    starts = ss.Progress(0, 0, 5)
    long = ss.Progress(0, 0, 5000, computed=8, blocks=2)
    behind = ss.Progress(1, 0, 5)
    for running, waiting, repeatable in (
        ([decodes], [], True),
        ([decodes], [behind], cls is VLLM),
        ([long], [], False),
        ([], [starts], cls is VLLM),
    ):
        view = ss.View(0, 1, waiting, running, 5000, 5002, 4)
        plan = cls(2048, 1).plan(view)
        assert plan.repeatable is repeatable, (running, waiting)
