"""What each policy does, against closed forms and against each other."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.cost import Affine, Work
from servesim.policies.draft import Draft
from tests import strategies
from tests.strategies import AFFINE, IN_ORDER, workloads

quick = settings(max_examples=80, derandomize=True, deadline=None)
free_of_base = st.builds(
    Affine, prefill_us=st.integers(0, 100), decode_us=st.integers(0, 900)
)  # only tokens cost, so work is the same in whatever batches


def steps_of(result):
    return [[tuple(s[:2]) for s in step.scheduled] for step in result.step_records]


def record(requests, policy, **options):
    return ss.simulate(requests, policy, record_steps=True, **options)


def at_once(*lengths):
    return [ss.Request(i, 0, prompt, output) for i, (prompt, output) in enumerate(lengths)]


# --- first come, first served


@given(run=strategies.runs(policies=st.sampled_from(IN_ORDER)))
@quick
def test_requests_are_first_scheduled_in_order_of_arrival(run):
    requests, policy, options = run
    result = record(requests, policy, **options)
    scheduled = itertools.chain.from_iterable(steps_of(result))
    assert list(dict.fromkeys(rid for rid, _ in scheduled)) == [r.id for r in requests]
    times = [r.first_scheduled_ns for r in result.records]
    assert times == sorted(times)


@given(run=strategies.runs(policies=st.sampled_from(IN_ORDER)))
@quick
def test_whoever_reserves_all_is_never_thrown_out(run):
    requests, policy, options = run
    assert ss.simulate(requests, policy, **options).preemptions == 0


# --- naive


@given(requests=workloads(), cost=strategies.prices)
@quick
def test_naive_is_lindley_s_recursion(requests, cost):
    result = ss.simulate(requests, ss.policies.Naive(), cost=cost)
    free_at = 0
    for r, got in zip(requests, result.records, strict=True):
        p = r.prompt_len
        start = max(r.arrival_ns, free_at)
        first = start + cost.price_ns(Work(p, attention_pairs=p * p, longest_prefill=p))
        free_at = first + sum(
            cost.price_ns(Work(decodes=1, context_tokens=p + i)) for i in range(1, r.output_len)
        )
        assert (got.first_scheduled_ns, got.first_token_ns) == (start, first)
        assert got.last_token_ns == free_at
    assert result.end_ns == free_at


def test_naive_takes_a_whole_prompt_and_then_one_token_at_a_time():
    result = record(at_once((5, 3), (7, 2)), ss.policies.Naive())
    assert steps_of(result) == [[(0, 5)], [(0, 1)], [(0, 1)], [(1, 7)], [(1, 1)]]
    assert result.step_records[0].waiting == [1]


# --- static


@given(requests=workloads(), cost=st.sampled_from(AFFINE))
@quick
def test_static_with_a_batch_of_one_is_naive(requests, cost):
    alone = ss.simulate(requests, ss.policies.Static(1), cost=cost)
    naive = ss.simulate(requests, ss.policies.Naive(), cost=cost)
    assert alone.records == naive.records


@given(
    requests=workloads(),
    size=st.integers(1, 5),
    base=st.integers(0, 9),
    prefill=st.integers(0, 50),
    decode=st.integers(0, 50),
)
@quick
def test_static_batches_run_one_after_the_other_padded_to_their_longest(
    requests, size, base, prefill, decode
):
    cost = Affine(base_ms=base, prefill_us=prefill, decode_us=decode)
    result = ss.simulate(requests, ss.policies.Static(size), cost=cost)
    clock = 0
    for i in range(0, len(requests), size):
        group, got = requests[i : i + size], result.records[i : i + size]
        clock = max(clock, group[-1].arrival_ns)
        assert {r.first_scheduled_ns for r in got} == {clock}
        padded = len(group) * max(r.prompt_len for r in group)
        clock += 1_000_000 * base + 1_000 * prefill * padded
        assert {r.first_token_ns for r in got} == {clock}
        step = 1_000_000 * base + 1_000 * decode * len(group)  # idle places are paid for
        for r, record in zip(group, got, strict=True):
            assert record.last_token_ns == clock + step * (r.output_len - 1)
        clock += step * (max(r.output_len for r in group) - 1)
    assert result.end_ns == clock


def test_static_waits_until_a_batch_is_full_or_nobody_comes_any_more():
    requests = [ss.Request(i, 10**9 * i, 5, 1) for i in range(3)]
    result = ss.simulate(requests, ss.policies.Static(2))
    assert [r.first_scheduled_ns for r in result.records] == [10**9, 10**9, 2 * 10**9]


def test_static_takes_as_many_as_fit_the_kv_cache():
    requests = at_once((10, 2), (10, 2), (10, 2))
    result = record(requests, ss.policies.Static(3), kv=ss.KVCache(2, 16))
    assert [len(step) for step in steps_of(result)] == [2, 2, 1, 1]


def test_static_does_not_wait_for_a_batch_that_can_never_be_full():
    requests = [*at_once((10, 2), (10, 2)), ss.Request(2, 10**12, 10, 2)]
    result = record(requests, ss.policies.Static(3), kv=ss.KVCache(1, 16))
    assert result.records[0].first_scheduled_ns == 0


# --- continuous


@given(requests=workloads(), cost=free_of_base)
@quick
def test_work_is_conserved(requests, cost):
    """Where only tokens cost, whoever is never idle without need is done at the same time."""
    policies = (ss.policies.Naive(), ss.policies.Continuous(), ss.policies.Chunked(chunk=7))
    results = [record(requests, policy, cost=cost) for policy in policies]
    work = sum(
        cost.price_ns(Work(r.prompt_len)) + (r.output_len - 1) * cost.price_ns(Work(decodes=1))
        for r in requests
    )
    for result in results:
        assert sum(step.cost_ns for step in result.step_records) == work
    assert len({result.end_ns for result in results}) == 1


@given(requests=workloads(), cost=strategies.prices)
@quick
def test_continuous_with_one_place_is_naive(requests, cost):
    one = ss.simulate(requests, ss.policies.Continuous(max_running=1), cost=cost)
    assert one.records == ss.simulate(requests, ss.policies.Naive(), cost=cost).records


@given(run=strategies.runs(), places=st.integers(1, 4), index=st.integers(0, 2))
@quick
def test_no_more_run_than_there_are_places(run, places, index):
    requests, _, options = run
    policy = (
        ss.policies.Continuous(max_running=places),
        ss.policies.Continuous(max_running=places, prefill_alone=True, wait_for_arrivals=True),
        ss.policies.Chunked(token_budget=9, max_running=places),
    )[index]
    result = record(requests, policy, **options)
    assert max(len(step.running) for step in result.step_records) <= places


def test_continuous_lets_in_and_out_in_every_step():
    requests = [*at_once((5, 3), (7, 1)), ss.Request(2, 1, 4, 2)]
    result = record(requests, ss.policies.Continuous())
    assert steps_of(result) == [[(0, 5), (1, 7)], [(0, 1), (2, 4)], [(0, 1), (2, 1)]]


def test_a_head_that_does_not_fit_blocks_those_behind_it():
    requests = at_once((20, 3), (30, 1), (5, 1))
    result = record(requests, ss.policies.Continuous(), kv=ss.KVCache(3, 16))
    assert steps_of(result) == [[(0, 20)], [(0, 1)], [(0, 1)], [(1, 30), (2, 5)]]
    assert "needs 2 blocks, 1 free" in result.step_records[0].reasons[1]


def test_prefill_alone_makes_everybody_else_wait():
    requests = at_once((5, 2), (7, 2))
    result = record(requests, ss.policies.Continuous(prefill_alone=True))
    assert steps_of(result) == [[(0, 5)], [(1, 7)], [(0, 1), (1, 1)]]


def test_waiting_for_arrivals_stops_those_who_could_decode():
    requests = [ss.Request(0, 0, 5, 3), ss.Request(1, 10**12, 5, 1)]
    eager, stubborn = (
        ss.simulate(requests, ss.policies.Continuous(max_running=2, wait_for_arrivals=wait))
        for wait in (False, True)
    )
    assert eager.records[0].last_token_ns < 10**12
    assert stubborn.records[0].last_token_ns > 10**12
    assert stubborn.records[0].first_scheduled_ns == 10**12


# --- chunked


@given(run=strategies.runs(), budget=st.integers(1, 30), chunk=st.none() | st.integers(1, 9))
@quick
def test_no_step_exceeds_the_budget_or_a_chunk(run, budget, chunk):
    requests, _, options = run
    result = record(requests, ss.policies.Chunked(token_budget=budget, chunk=chunk), **options)
    for step in result.step_records:
        assert sum(s.tokens for s in step.scheduled) <= budget
        if chunk is not None:
            assert all(s.tokens <= chunk for s in step.scheduled)


@given(run=strategies.runs())
@quick
def test_decodes_are_served_before_prompts(run):
    requests, _, options = run
    result = record(requests, ss.policies.Chunked(token_budget=8), **options)
    decoding = set()
    for step in result.step_records:
        order = [s.decode for s in step.scheduled]
        assert order == sorted(order, reverse=True)
        if len(decoding) <= 8:
            assert decoding <= {s.id for s in step.scheduled}
        decoding |= {s.id for s in step.scheduled if s.sampled}
        decoding -= set(step.finished)


@given(
    requests=strategies.workloads(), budget=st.integers(1, 6), chunk=st.none() | st.integers(1, 9)
)
@quick
def test_those_who_decode_never_outgrow_a_token_budget(requests, budget, chunk):
    run = record(requests, ss.policies.Chunked(token_budget=budget, chunk=chunk))
    assert run.count("finished") == len(requests)
    for step in run.step_records:
        assert step.work.decodes + step.work.prefill_tokens <= budget


@given(run=strategies.runs())
@quick
def test_without_a_tight_limit_chunked_is_continuous(run):
    requests, _, options = run
    chunked = record(requests, ss.policies.Chunked(token_budget=10**6), **options)
    continuous = record(requests, ss.policies.Continuous(), **options)
    assert chunked.records == continuous.records
    assert steps_of(chunked) == steps_of(continuous)


def test_a_chunk_limits_each_request_and_a_budget_all_of_them():
    requests = at_once((5, 2), (9, 2))
    each = record(requests, ss.policies.Chunked(chunk=4))
    assert steps_of(each) == [
        [(0, 4), (1, 4)],
        [(0, 1), (1, 4)],
        [(0, 1), (1, 1)],
        [(1, 1)],
    ]
    shared = record(requests, ss.policies.Chunked(token_budget=6))
    assert steps_of(shared) == [[(0, 5), (1, 1)], [(0, 1), (1, 5)], [(1, 3)], [(1, 1)]]
    both = record(requests, ss.policies.Chunked(token_budget=6, chunk=4))
    assert steps_of(both) == [
        [(0, 4), (1, 2)],
        [(0, 1), (1, 4)],
        [(0, 1), (1, 3)],
        [(1, 1)],
    ]


class Shrinking(ss.policies.Chunked):
    """A budget that falls below those who decode: they still get a token each."""

    def plan(self, view):
        self.token_budget = max(1, 6 - view.step)
        return super().plan(view)


def test_a_budget_that_falls_leaves_nothing_to_prompts():
    requests = [*(ss.Request(i, 0, 1, 9) for i in range(5)), ss.Request(5, 0, 30, 2)]
    steps = record(requests, Shrinking()).step_records
    prompt = [sum(s.tokens for s in step.scheduled if s.id == 5) for step in steps]
    assert prompt[:10] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_chunking_shortens_the_longest_gap_between_tokens():
    requests = [ss.Request(0, 0, 100, 40), ss.Request(1, 1, 8000, 2)]
    whole, sliced = (
        ss.simulate(requests, policy).itl_ms.max
        for policy in (ss.policies.Continuous(), ss.policies.Chunked(token_budget=256))
    )
    assert sliced < whole / 5


# --- options and names


@pytest.mark.parametrize("bad", [0, -1, 1.5, "8", True])
@pytest.mark.parametrize(
    ("policy", "option"),
    [
        (ss.policies.Static, "batch_size"),
        (ss.policies.Continuous, "max_running"),
        (ss.policies.Chunked, "token_budget"),
        (ss.policies.Chunked, "chunk"),
        (ss.policies.Chunked, "max_running"),
    ],
)
def test_sizes_are_whole_numbers_from_one(policy, option, bad):
    with pytest.raises(ss.InputError, match=option):
        policy(**{option: bad})


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (ss.policies.Naive(), "Naive()"),
        (ss.policies.Static(), "Static()"),
        (ss.policies.Static(4), "Static(batch_size=4)"),
        (ss.policies.Continuous(max_running=3), "Continuous(max_running=3)"),
        (ss.policies.Chunked(), "Chunked(token_budget=512)"),
        (ss.policies.Chunked(chunk=64), "Chunked(chunk=64)"),
    ],
)
def test_a_policy_is_named_with_its_options(policy, name):
    assert repr(policy) == name
    assert ss.simulate(at_once((2, 1)), policy).policy.startswith(name)


def test_the_base_class_has_no_plan_of_its_own():
    with pytest.raises(NotImplementedError):
        ss.Policy().plan(None)


def test_compare_runs_the_same_work_under_each_policy():
    requests = ss.workload.poisson(20, seed=1)
    policies = [ss.policies.Naive(), ss.policies.Static(4), ss.policies.Continuous()]
    table = ss.compare(requests, policies, slo=ss.SLO(2000, 100))
    assert table.results == [ss.simulate(requests, p) for p in policies]
    header, *rows = table.rows()
    assert header[0] == "policy"
    assert header[-2:] == ["attainment %", "goodput req/s"]
    assert [row[0] for row in rows] == [repr(p) for p in policies]
    assert {len(row) for row in table.rows()} == {len(header)}
    assert all(row[0] in str(table) for row in rows)
    assert table._repr_html_().count("<tr>") == 4


# --- what one may count on


def test_a_policy_is_called_on_the_command_line_as_its_class_is():
    for name, cls in ss.policies.BUILT_IN.items():
        assert name.replace("_", "") == cls.__name__.lower()
    assert len(ss.policies.BUILT_IN) == 12


def test_a_policy_is_told_nothing_unless_it_asks():
    assert (ss.Policy.knows_output_length, ss.Policy.reserve_all) == (False, False)


def test_options_that_are_not_given():
    p = ss.policies
    assert p.Static().batch_size == 16
    assert (p.Continuous().max_running, p.Chunked().max_running) == (None, None)
    assert (p.Chunked().token_budget, p.Chunked(chunk=64).token_budget) == (512, None)
    assert (p.PrefillFirst().token_budget, p.PrefillFirst().max_running) == (16384, 512)
    assert (p.Orca().reserve, p.Orca().max_len) == ("oracle", 2048)
    assert (p.VLLM().max_num_batched_tokens, p.VLLM().max_num_seqs) == (2048, 256)
    assert p.VLLM() == p.VLLM(2048, 256, 0, True, "fcfs", True, 0.0, "0.33.0")
    assert p.Priority().patience_s == p.Shedding().patience_s == 10
    assert (p.ShortestFirst().error, p.ShortestFirst().seed) == (0, 0)
    assert (p.Fair().output_weight, p.StepTarget().target_ms) == (2, 100)


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        (
            ss.policies.Naive(),
            ["r1 waits: r0 is served alone", "r1 waits: r0 is served alone"],
        ),
        (
            ss.policies.Static(2),
            [
                "r2 waits: a group of 2 starts",
                "r2 waits: the group is not done, 2 of 2 still decode",
            ],
        ),
        (
            ss.policies.Continuous(max_running=2),
            ["r2 waits: all 2 places are taken", "r2 waits: all 2 places are taken"],
        ),
        (
            ss.policies.Chunked(token_budget=9, max_running=2),
            ["r1 waits: the step's 9 tokens are used", "r2 waits: all 2 places are taken"],
        ),
        (
            ss.policies.VLLM(9, 2),
            ["r1 waits: the step's 9 tokens are used", "r2 waits: all 2 places are taken"],
        ),
        (
            ss.policies.VLLM(12, 9),
            ["r2 waits: the step's 12 tokens are used", "r3 waits: the step's 12 tokens are used"],
        ),
    ],
)
def test_who_is_next_is_told_why_it_waits_and_nobody_else(policy, reasons):
    result = record(at_once((9, 4), (3, 4), (20, 2), (2, 2)), policy)
    assert [list(step.reasons.values()) for step in result.step_records[:2]] == [
        [reason] for reason in reasons
    ]
    for step in result.step_records[:2]:
        assert all(reason.startswith(f"r{rid} ") for rid, reason in step.reasons.items())


def test_in_a_step_of_prompts_everyone_who_runs_is_told_so():
    result = record(at_once((9, 4), (3, 4), (2, 2)), ss.policies.PrefillFirst(9, 2))
    first, second, third = (step.reasons for step in result.step_records[:3])
    assert first == {1: "r1 waits: 3 tokens do not fit the 0 left in the budget"}
    assert second == {
        0: "r0 waits: this step takes in prompts only",
        2: "r2 waits: all 2 places are taken",
    }
    assert third == {2: "r2 waits: all 2 places are taken"}


def test_a_group_that_is_not_full_says_how_many_are_there():
    requests = [ss.Request(0, 0, 5, 1), ss.Request(1, 10**9, 5, 1)]
    (step,) = record(requests, ss.policies.Static(2)).step_records
    assert step.paused == {0: "r0 waits: 1 of 2 have arrived"}


@pytest.mark.parametrize("name", ss.policies.BUILT_IN)
def test_equal_steps_are_planned_once(name):
    result = ss.simulate(at_once((5, 200), (7, 200)), ss.policies.BUILT_IN[name]())
    assert result.steps >= 200
    assert result.engine_iterations <= 8


# --- one plan of what a test shows it


def run_of(rid, computed, produced=1, prompt=None, block_size=4, **more):
    """Return a running request; without a prompt it decodes."""
    prompt = computed + 1 - produced if prompt is None else prompt
    blocks = -(-computed // block_size)
    return ss.Progress(rid, 0, prompt, computed=computed, produced=produced, blocks=blocks, **more)


def shown(running, waiting=(), free=0, block_size=4):
    """Return a view of these requests and so many free blocks."""
    total = free + sum(r.blocks for r in running)
    return ss.View(10**9, 9, list(waiting), list(running), free, total, block_size)


def test_a_first_prompt_is_all_that_is_planned():
    plan = ss.policies.VLLM(8).plan(shown([], [ss.Progress(0, 0, 5)], free=2))
    assert plan == ss.Plan([(0, 5)], repeatable=True, until_arrival=True)


@pytest.mark.parametrize(
    ("request_", "budget", "tokens", "repeatable"),
    [
        (run_of(0, 3, 0, prompt=5), 8, 2, True),  # its prompt ends
        (run_of(0, 3, 0, prompt=9), 4, 4, False),
        (run_of(0, 0, 3, prompt=5), 4, 4, False),  # thrown out before: 8 to be computed again
        (run_of(0, 0, 3, prompt=5), 8, 8, True),
        (run_of(0, 4, 2, prompt=7), 4, 4, False),
        (run_of(0, 4, 2, prompt=7), 5, 5, True),
    ],
)
@pytest.mark.parametrize("runs", [True, False])
def test_a_plan_repeats_itself_once_all_that_was_missing_is_computed(
    request_, budget, tokens, repeatable, runs
):
    view = shown([request_] * runs, [request_] * (not runs), free=9)
    plan = ss.policies.VLLM(budget).plan(view)
    assert plan.scheduled == [(0, tokens)]
    assert (plan.repeatable, plan.until_arrival) == (repeatable, True)


def test_with_the_budget_used_up_the_next_in_turn_and_the_head_are_told_so():
    prefilling = [run_of(rid, 4, 0, prompt=30) for rid in range(4)]
    waiting = [ss.Progress(rid, 0, 3) for rid in (7, 8)]
    plan = ss.policies.VLLM(6).plan(shown(prefilling, waiting, free=9))
    assert plan.scheduled == [(0, 6)]
    assert plan.reasons == {
        1: "r1 waits: the step's 6 tokens are used",
        7: "r7 waits: the step's 6 tokens are used",
    }


def test_who_is_thrown_out_and_the_head_of_the_queue_are_told_why():
    """Two need a block. The last has one to give, which is not enough: the one before goes too."""
    running = [run_of(0, 4), run_of(1, 4), run_of(2, 3)]
    waiting = [ss.Progress(rid, 0, 1) for rid in (7, 8)]
    plan = ss.policies.VLLM().plan(shown(running, waiting))
    assert plan == ss.Plan(
        decode_all=True,
        preempted=[2, 1],
        reasons={
            2: "r2 is thrown out: those who decode need 2 blocks more, 0 free",
            1: "r1 is thrown out: those who decode need 2 blocks more, 1 free",
            7: "r7 waits: nobody joins in a step that throws somebody out",
        },
    )


def test_what_is_left_adds_up_after_throwing_out():
    """Whoever writes a policy with a `Draft` may go on with its budget, blocks and places."""
    running = [run_of(0, 4), run_of(1, 8), run_of(2, 3), run_of(3, 5, 0, prompt=9)]
    draft = Draft(shown(running), 10)
    draft.begin(last_goes_first=True)
    assert [r.id for r in draft.preempted] == [3]
    assert (draft.budget, draft.free, draft.size, draft.turns) == (7, 0, 3, [])
    draft = Draft(shown(running[:3]), 10)
    draft.begin(last_goes_first=True)
    assert [r.id for r in draft.preempted] == [2, 1]
    assert (draft.budget, draft.free, draft.size, draft.turns) == (9, 2, 1, [])


class FirstGoes(ss.policies.VLLM):
    """Preempts the first of the batch."""

    def victim(self, step):
        step.name_everyone()
        return step.turns[0]


def test_a_victim_of_one_s_own_is_asked_for_among_those_who_decode():
    plan = FirstGoes().plan(shown([run_of(0, 5), run_of(1, 4), run_of(2, 5)]))
    assert plan.preempted == [0]
    assert sorted(plan.scheduled) == [(1, 1), (2, 1)]


@pytest.mark.parametrize(("release", "served"), [("0.33.0", [(1, 1)]), ("0.11.2", [])])
def test_by_priority_one_that_preempts_itself_ends_the_scan_in_the_older_release(release, served):
    running = [run_of(0, 4, priority=9), run_of(1, 5)]
    plan = ss.policies.VLLM(policy="priority", release=release).plan(shown(running))
    assert plan.preempted == [0]
    assert plan.scheduled == served
    assert plan.reasons == {0: "r0 is thrown out: r0 needs 1 block more, 0 free"}


@pytest.mark.parametrize(("release", "joins"), [("0.33.0", []), ("0.11.2", [(2, 3)])])
def test_a_whole_prompt_above_the_budget_is_told_so(release, joins):
    policy = ss.policies.VLLM(8, enable_chunked_prefill=False, release=release)
    waiting = [ss.Progress(1, 0, 9), ss.Progress(2, 0, 3)]
    plan = policy.plan(shown([run_of(0, 5)], waiting, free=9))
    assert plan.decode_all
    assert plan.scheduled == joins
    assert plan.reasons == {1: "r1 waits: 9 tokens do not fit the 7 left in the budget"}
    assert plan.repeatable is (release == "0.33.0")


def test_a_group_whose_head_does_not_fit_names_the_head():
    waiting = [ss.Progress(0, 0, 40, predicted_output=1), ss.Progress(1, 0, 1, predicted_output=1)]
    plan = ss.policies.Static(2).plan(shown([], waiting, free=3))
    assert plan == ss.Plan(reasons={0: "r0 waits: its blocks do not fit the KV cache"})
