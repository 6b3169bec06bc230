"""What must hold of every run, whatever the policy, the prices and the memory."""

import itertools
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.cost import Work
from servesim.engine import Engine
from tests import strategies

quick = settings(max_examples=80, derandomize=True, deadline=None)


def facts(result):
    """Everything a run gave, without its steps."""
    summary = {name: getattr(result, name) for name in result.__dataclass_fields__}
    del summary["step_records"], summary["policy"], summary["engine_iterations"]
    return summary


def recorded(run, **more):
    requests, policy, options = run
    return ss.simulate(requests, policy, record_steps=True, **options, **more)


# --- a second bookkeeping, from the step records alone


@given(run=strategies.runs(), count_first=st.booleans())
@settings(max_examples=300, derandomize=True, deadline=None)
def test_the_step_records_add_up(run, count_first):
    requests, _, options = run
    if not count_first and options["kv"].blocks is not None:
        # Room for one token more, which a prediction may double.
        most = options["kv"].blocks + 1 + max(r.output_len for r in requests)
        options["kv"] = ss.KVCache(most, options["kv"].block_size)
    result = recorded(run, count_first_token=count_first)
    asked = {r.id: r for r in requests}
    computed, produced, held = Counter(), Counter(), Counter()
    times = {r.id: [] for r in requests}
    batch, queue, seen, gone = [], [], [], set()
    free, clock = options["kv"].usable, requests[0].arrival_ns

    for i, step in enumerate(result.step_records):
        # Time and arrivals.
        assert step.index == i
        assert step.start_ns >= clock
        clock = step.end_ns
        seen += step.arrived
        assert all(asked[rid].arrival_ns <= step.start_ns for rid in step.arrived)
        queue += step.arrived

        # Who leaves and joins the batch.
        assert step.free_blocks[0] == free
        for rid in step.preempted:
            batch.remove(rid)
            queue.insert(0, rid)
            free += held.pop(rid)
            computed[rid] = 0
        for rid, *_ in step.scheduled:
            if rid not in batch:
                batch.append(rid)
                queue.remove(rid)
        assert step.running == batch
        assert Counter(step.waiting) == Counter(queue)
        queue = list(step.waiting)

        # Blocks are conserved.
        for rid in batch:
            free -= step.blocks[rid] - held[rid]
            held[rid] = step.blocks[rid]
        assert step.free_blocks[1] == free >= 0
        assert free + sum(held.values()) == options["kv"].usable

        # The one rule of progress.
        work = Counter()
        for rid, tokens, sampled, decode in step.scheduled:
            missing = asked[rid].prompt_len + produced[rid] - computed[rid]
            assert 1 <= tokens <= missing
            assert decode is (produced[rid] > 0 and missing == 1)
            assert sampled is (tokens == missing)
            if decode:
                work.update(decodes=1, context_tokens=computed[rid] + 1)
            else:
                work.update(prefill_tokens=tokens)
            computed[rid] += tokens
            assert held[rid] * options["kv"].block_size >= computed[rid]
            if sampled:
                produced[rid] += 1
                times[rid].append(step.end_ns)
        assert step.work.prefill_tokens >= work["prefill_tokens"]  # it may be padded
        assert step.work.decodes == work["decodes"] + step.idle_slots
        assert step.work.context_tokens == work["context_tokens"]
        assert step.cost_ns == options["cost"].price_ns(step.work)

        # Who is done leaves, and gives its blocks back.
        target = {rid: asked[rid].output_len + (not count_first) for rid in batch}
        done = [rid for rid, *_ in step.scheduled if produced[rid] == target[rid]]
        assert step.finished == done
        for rid in done:
            batch.remove(rid)
            free += held.pop(rid)
        gone.update(done)
        assert step.free_blocks[2] == free

    assert free == options["kv"].usable
    assert sorted(seen) == sorted(asked) == sorted(gone)
    assert result.end_ns == clock
    assert result.steps == len(result.step_records)
    assert result.preemptions == sum(len(s.preempted) for s in result.step_records)
    for record in result.records:
        mine = times[record.request.id]
        assert list(record.token_times_ns()) == mine
        assert (record.first_token_ns, record.last_token_ns) == (mine[0], mine[-1])
        assert record.output_tokens == record.request.output_len


@given(run=strategies.runs())
@quick
def test_the_integrals_are_those_of_the_step_records(run):
    result = recorded(run)
    blocks = batch = 0
    previous = None
    for step in result.step_records:
        if previous is not None:  # a gap in which the engine waited, batch and blocks as they were
            gap = step.start_ns - previous.end_ns
            blocks += gap * (result.kv.usable - previous.free_blocks[2])
            batch += gap * (len(previous.running) - len(previous.finished))
        blocks += step.cost_ns * (result.kv.usable - step.free_blocks[1])
        batch += step.cost_ns * len(step.running)
        previous = step
    assert (result.block_ns, result.running_ns) == (blocks, batch)
    assert result.peak_blocks == max(
        result.kv.usable - step.free_blocks[1] for step in result.step_records
    )


@given(run=strategies.runs())
@quick
def test_what_is_cached_was_promised_and_what_was_promised_is_held(run):
    requests, policy, options = run
    result = ss.simulate(requests, policy, **options)
    held = result.block_ns * result.kv.block_size
    assert result.token_ns <= result.promised_ns
    assert result.token_ns <= held
    if getattr(policy, "reserve_all", False):
        assert result.promised_ns <= result.claimed_ns <= held
    else:
        assert result.claimed_ns == 0


@given(run=strategies.runs())
@quick
def test_little_s_law_holds_exactly(run):
    requests, policy, options = run
    result = ss.simulate(requests, policy, **options)
    assert result.system_ns == sum(r.e2e_ns for r in result.records)
    assert 0 <= result.running_ns <= result.system_ns


@given(run=strategies.runs())
@quick
def test_no_request_is_lost_or_doubled(run):
    requests, policy, options = run
    told = []
    result = ss.simulate(requests, policy, on_done=told.append, **options)
    assert result.outcome == "completed"
    assert [r.request for r in result.records] == requests
    assert {r.status for r in result.records} == {"finished"}
    assert sorted(r.request.id for r in told) == sorted(r.id for r in requests)


@given(run=strategies.runs(policies=st.sampled_from(strategies.IN_ORDER)))
@quick
def test_every_token_but_the_last_is_computed_once(run):
    result = recorded(run)
    tokens = Counter()
    for step in result.step_records:
        for s in step.scheduled:
            tokens[s.id] += s.tokens
    assert tokens == {r.id: r.prompt_len + r.output_len - 1 for r in run[0]}


@given(run=strategies.runs())
@quick
def test_nobody_s_first_token_is_faster_than_its_own_prefill(run):
    requests, policy, options = run
    for record in ss.simulate(requests, policy, **options).records:
        p = record.request.prompt_len
        alone = Work(prefill_tokens=p, attention_pairs=p * p, longest_prefill=p)
        assert record.ttft_ns >= options["cost"].price_ns(alone)


# --- the same run, asked for in another way


@given(run=strategies.runs())
@quick
def test_a_run_can_be_repeated_with_the_same_policy_object(run):
    requests, policy, options = run
    once, again = (ss.simulate(requests, policy, **options) for _ in range(2))
    assert once == again


@given(run=strategies.runs())
@quick
def test_recording_steps_changes_nothing(run):
    requests, policy, options = run
    assert facts(recorded(run)) == facts(ss.simulate(requests, policy, **options))


@given(run=strategies.runs())
@quick
def test_a_stream_of_requests_gives_the_same_run(run):
    requests, policy, options = run
    listed = ss.simulate(requests, policy, **options)
    assert ss.simulate(iter(requests), policy, **options) == listed


def shifted(requests, ns):
    return [
        ss.Request(r.id, r.arrival_ns + ns, r.prompt_len, r.output_len, r.priority)
        for r in requests
    ]


@given(run=strategies.runs(), ns=st.integers(0, 10**12))
@quick
def test_starting_later_shifts_every_time_by_the_same_amount(run, ns):
    requests, policy, options = run
    early = ss.simulate(requests, policy, **options)
    late = ss.simulate(shifted(requests, ns), policy, **options)
    assert late.end_ns == early.end_ns + ns
    assert (late.system_ns, late.running_ns) == (early.system_ns, early.running_ns)
    for a, b in zip(early.records, late.records, strict=True):
        assert (b.ttft_ns, b.e2e_ns, b.gaps) == (a.ttft_ns, a.e2e_ns, a.gaps)


@given(run=strategies.runs(policies=st.sampled_from(strategies.IN_ORDER)))
@quick
def test_ids_are_names_and_nothing_more(run):
    requests, policy, options = run
    renamed = [
        ss.Request(1000 - i, r.arrival_ns, r.prompt_len, r.output_len)
        for i, r in enumerate(requests)
    ]
    a, b = (ss.simulate(work, policy, **options) for work in (requests, renamed))
    assert a.end_ns == b.end_ns
    assert [r.e2e_ns for r in a.records] == [r.e2e_ns for r in b.records]


def test_equal_arrivals_join_the_queue_together_and_in_the_order_given():
    requests = [ss.Request(rid, 5, 4, 1) for rid in (3, 1, 2)]
    result = ss.simulate(requests, ss.policies.Naive(), record_steps=True)
    assert result.step_records[0].arrived == [3, 1, 2]
    assert [s.scheduled[0].id for s in result.step_records] == [3, 1, 2]


def test_the_preempted_go_to_the_head_of_the_queue_one_after_the_other():
    class Once:
        def plan(self, view):
            if view.step == 1:
                return ss.Plan([(1, 1)], preempted=[0, 2])
            batch = view.running or view.waiting[:3]
            return ss.Plan([(r.id, r.missing) for r in batch])

    requests = [ss.Request(i, 0, 4, 3) for i in range(4)]
    second = ss.simulate(requests, Once(), record_steps=True).step_records[1]
    assert (second.running, second.waiting) == ([1], [2, 0, 3])


@pytest.mark.parametrize("steps", [0, 1, 5, 10_000])
def test_a_run_can_be_cut_short(steps):
    requests = ss.workload.poisson(8, seed=3, output=(2, 6))
    whole = ss.simulate(requests, ss.policies.Continuous(), record_steps=True)
    cut = ss.simulate(requests, ss.policies.Continuous(), record_steps=True, max_steps=steps)
    assert cut.step_records == whole.step_records[:steps]
    assert cut.outcome == ("completed" if steps > whole.steps else "max_steps")


def test_a_request_ends_at_the_model_s_length():
    result = ss.simulate([ss.Request(0, 0, 10, 50)], ss.policies.Naive(), max_model_len=14)
    assert result.records[0].output_tokens == 4
    assert result.records[0].status == "finished"


def test_arrivals_can_be_given_as_steps():
    requests = [ss.Request(0, 0, 4, 5), ss.Request(1, 2, 4, 1), ss.Request(2, 50, 4, 1)]
    result = ss.simulate(
        requests, ss.policies.Continuous(), arrivals_by_step=True, record_steps=True
    )
    assert {rid: s.index for s in result.step_records for rid in s.arrived} == {0: 0, 1: 2, 2: 50}


# --- requests that can never fit


def test_a_request_that_can_never_fit_is_refused_before_the_run():
    requests = [ss.Request(0, 0, 4, 1), ss.Request(1, 0, 17, 1)]
    with pytest.raises(ss.InputError, match=r"request 1 can never run.*needs 2 KV blocks"):
        ss.simulate(requests, ss.policies.Naive(), kv=ss.KVCache(1, 16))


@given(run=strategies.runs(policies=st.sampled_from([*strategies.IN_ORDER[4:7], ss.Policy])))
@quick
def test_turning_away_what_never_fits_leaves_the_others_alone(run):
    requests, policy, options = run
    if policy is ss.Policy:
        policy = ss.policies.Naive()
    kv = options["kv"] = ss.KVCache(blocks=4, block_size=8)
    small = [r for r in requests if r.prompt_len + r.output_len - 1 <= 32]
    result = ss.simulate(requests, policy, never_fits="reject", **options)
    assert [r.request for r in result.rejected] == [r for r in requests if r not in small]
    assert all(r.first_scheduled_ns is None for r in result.rejected)
    assert result.kv is kv
    if small:
        assert result.finished == ss.simulate(small, policy, **options).records


def test_what_fits_exactly_is_served():
    result = ss.simulate([ss.Request(0, 0, 30, 3)], ss.policies.Naive(), kv=ss.KVCache(2, 16))
    assert result.peak_blocks == 2
    with pytest.raises(ss.InputError, match="never run"):
        ss.simulate([ss.Request(0, 0, 30, 4)], ss.policies.Naive(), kv=ss.KVCache(2, 16))


# --- bad input from Python


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        ([], "empty"),
        (iter([]), "empty"),
        ([ss.Request(0, 5, 1, 1), ss.Request(1, 4, 1, 1)], "request 1 .*sort"),
        ([ss.Request(0, 5, 1, 1), ss.Request(0, 6, 1, 1)], "request 0 appears twice"),
        ([ss.Request(0, 5, 1, 1), "r1"], "Request"),
    ],
)
def test_an_unusable_workload_is_refused(requests, says):
    with pytest.raises(ss.InputError, match=says):
        ss.simulate(requests, ss.policies.Naive())


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "0"},
        {"id": True},
        {"id": 2**63},
        {"arrival_ns": -1},
        {"arrival_ns": 0.5},
        {"arrival_ns": float("nan")},
        {"arrival_ns": 10**18 + 1},
        {"arrival_ns": 10**5000},
        {"prompt_len": 0},
        {"prompt_len": -3},
        {"prompt_len": 2.0},
        {"output_len": 0},
        {"output_len": 10**9},
        {"output_len": True},
        {"priority": 1.5},
        {"priority": 2**63},
        {"priority": -(2**63) - 1},
        {"prompt_len": 10**5000},
        {"tenant": 3},
    ],
)
def test_an_impossible_request_is_refused(fields):
    good = {"id": 0, "arrival_ns": 0, "prompt_len": 1, "output_len": 1}
    ss.Request(**good)
    with pytest.raises(ss.InputError, match=next(iter(fields))):
        ss.Request(**{**good, **fields})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"never_fits": "ignore"}, "never_fits"),
        ({"on_stall": "ignore"}, "on_stall"),
        ({"max_model_len": -1}, "max_model_len"),
        ({"max_model_len": 8.5}, "max_model_len"),
        ({"max_steps": "9"}, "max_steps"),
        ({"stall_steps": None}, "stall_steps"),
        ({"cost": ss.cost.Affine(base_ms=1e12)}, "the clock ends .* lower the prices"),
        ({"cost": ss.cost.Roofline(), "stamp_inside_step": True}, "stamp_inside_step"),
    ],
)
def test_an_unusable_option_is_refused(options, says):
    with pytest.raises(ss.InputError, match=says):
        ss.simulate([ss.Request(0, 0, 1, 20)], ss.policies.Naive(), **options)


def test_the_largest_numbers_accepted_fit_a_run():
    last = ss.Request(2**63 - 1, 10**18, 1, 1, priority=-(2**63))
    result = ss.simulate([ss.Request(-(2**63), 0, 1, 1), last], ss.policies.Naive())
    assert result.records[1].request == last
    assert result.records[1].status == "finished"


@pytest.mark.parametrize("price", [-1, 1.5, True, None])
def test_a_price_that_is_not_whole_nanoseconds_is_refused(price):
    class Broken:
        def price_ns(self, work):
            return price

    with pytest.raises(ss.InputError, match="whole nanoseconds"):
        ss.simulate([ss.Request(0, 0, 1, 1)], ss.policies.Naive(), cost=Broken())


def test_a_class_is_not_a_policy():
    for wrong in (ss.policies.Naive, object(), None):
        with pytest.raises(ss.InputError, match="is not a policy") as refused:
            ss.simulate([ss.Request(0, 0, 1, 1)], wrong)
        assert " at 0x" not in str(refused.value)


def test_a_policy_that_cannot_be_copied_is_refused():
    class Drawing:
        def __init__(self):
            self.ids = (i for i in range(9))

        def plan(self, view):
            return ss.Plan()

    with pytest.raises(ss.InputError, match="Drawing cannot be copied for the run"):
        ss.simulate([ss.Request(0, 0, 1, 1)], Drawing())


@pytest.mark.parametrize("attribute", ["plan", "knows_output_length", "predict", "__repr__"])
def test_a_policy_s_attribute_may_fail_too(attribute):
    def fail(self):
        raise ZeroDivisionError

    body = {"plan": lambda self, view: ss.Plan(), "knows_output_length": True}
    body[attribute] = fail if attribute == "__repr__" else property(fail)
    with pytest.raises(ss.PolicyError, match="ZeroDivisionError"):
        ss.simulate([ss.Request(0, 0, 1, 1)], type("Faulty", (), body)())


def test_a_policy_keeps_its_name_whatever_it_notes():
    @dataclass
    class Notes:
        seen: list[int] = field(default_factory=list)

        def plan(self, view):
            self.seen.append(view.step)
            return ss.Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])

    assert ss.simulate([ss.Request(0, 0, 1, 9)], Notes()).policy.endswith("Notes(seen=[])")


def test_reserving_all_needs_the_output_length():
    class Forgetful:
        reserve_all = True

        def plan(self, view):
            return ss.Plan()

    with pytest.raises(ss.InputError, match="knows_output_length"):
        ss.simulate([ss.Request(0, 0, 1, 1)], Forgetful())


# --- what a policy is told


@pytest.mark.parametrize("knows", [False, True])
def test_only_a_policy_that_declares_it_sees_the_output_length(knows):
    seen = set()

    class Peek:
        knows_output_length = knows

        def plan(self, view):
            seen.update(r.predicted_output for r in [*view.waiting, *view.running])
            return ss.Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])

    ss.simulate([ss.Request(0, 0, 3, 4)], Peek())
    assert seen == ({4} if knows else {None})


def test_a_policy_sees_clock_step_blocks_and_whether_more_will_come():
    views = []

    class Watch:
        def plan(self, view):
            views.append(view.to_json())
            return ss.Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])

    policy = Watch()
    requests = [ss.Request(0, 3, 20, 2), ss.Request(7, 4, 5, 1, priority=2, tenant="a")]
    ss.simulate(requests, policy, cost=ss.cost.Affine(base_ms=1), kv=ss.KVCache(10, 16))
    first, second = views
    assert (first["clock_ns"], first["step"], first["more_to_come"]) == (3, 0, True)
    assert (first["free_blocks"], first["total_blocks"], first["block_size"]) == (10, 10, 16)
    assert (second["clock_ns"], second["step"], second["more_to_come"]) == (1_000_003, 1, False)
    assert second["free_blocks"] == 8
    (waiting,), (running,) = second["waiting"], second["running"]
    assert (running["id"], running["computed"], running["produced"]) == (0, 20, 1)
    assert running["blocks"] == 2
    assert (waiting["id"], waiting["arrival_ns"], waiting["prompt_len"]) == (7, 4, 5)
    assert (waiting["priority"], waiting["tenant"]) == (2, "a")


def test_counting_down_in_the_view_is_harmless():
    class Greedy:
        def plan(self, view):
            plan = ss.Plan()
            for r in itertools.chain(view.running, view.waiting):
                need = view.blocks_needed(r, r.missing)
                if need <= view.free_blocks:
                    view.free_blocks -= need
                    plan.scheduled.append((r.id, r.missing))
            return plan

    requests = [ss.Request(i, 0, 16, 1) for i in range(5)]
    result = ss.simulate(requests, Greedy(), kv=ss.KVCache(2, 16), record_steps=True)
    assert [len(s.scheduled) for s in result.step_records] == [2, 2, 1]


# --- the two quirks


def test_an_uncounted_first_token_is_followed_by_all_that_were_asked_for():
    cost = ss.cost.Affine(base_ms=1)
    for counted, end in ((True, 5), (False, 6)):
        result = ss.simulate(
            [ss.Request(0, 0, 3, 5)], ss.policies.Naive(), cost=cost, count_first_token=counted
        )
        assert result.end_ns == end * 1_000_000
        assert result.output_tokens == 5
        assert len(result.itl_ms) == end - 1


def test_a_first_token_stamped_inside_the_step_comes_when_its_own_prompt_is_done():
    requests = [ss.Request(0, 0, 10, 2), ss.Request(1, 0, 20, 2)]
    cost = ss.cost.Affine(base_ms=1, prefill_us=1, decode_us=100)
    result = ss.simulate(requests, ss.policies.Continuous(), cost=cost, stamp_inside_step=True)
    assert [r.first_token_ns for r in result.records] == [10_000, 30_000]
    assert [list(r.gaps) for r in result.records] == [[2_220_000], [2_200_000]]


# --- what a result says of the run


@pytest.mark.parametrize(
    ("policy", "blocks", "told"),
    [
        (ss.policies.VLLM(), 100, False),
        (ss.policies.VLLM(), None, False),
        (ss.policies.Continuous(), 100, True),
        (ss.policies.Continuous(), None, False),  # a reservation changes nothing
        (ss.policies.ShortestFirst(), None, True),
    ],
)
def test_a_policy_that_could_use_the_output_length_is_marked(policy, blocks, told):
    result = ss.simulate([ss.Request(0, 0, 5, 2)], policy, kv=ss.KVCache(blocks))
    assert result.told_output_length is told


@pytest.mark.parametrize(("budget", "shown"), [(7, 7), (0, None), (True, None), ("7", None)])
def test_a_token_budget_is_shown_if_it_is_one(budget, shown):
    class Whole:
        token_budget = budget

        def plan(self, view):
            return ss.Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])

    assert ss.simulate([ss.Request(0, 0, 5, 2)], Whole()).token_budget == shown


def test_vllm_s_budget_has_a_name_of_its_own():
    for policy, shown in ((ss.policies.VLLM(64), 64), (ss.policies.Naive(), None)):
        assert ss.simulate([ss.Request(0, 0, 5, 2)], policy).token_budget == shown


def test_a_run_stalls_after_three_empty_steps():
    class Idle:
        def plan(self, view):
            return ss.Plan()

    asked = [
        ss.simulate([ss.Request(0, 0, 5, 2)], Idle(), on_stall="record", **options)
        for options in ({}, {"stall_steps": 3}, {"stall_steps": 4})
    ]
    assert {result.outcome for result in asked} == {"stalled"}
    default, three, four = (result.engine_iterations for result in asked)
    assert default == three == four - 1


def test_the_integrals_go_on_while_the_batch_stands_still():
    class Pause:
        def plan(self, view):
            if view.step == 1 and view.more_to_come:
                return ss.Plan(wait=True)
            return ss.Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])

    # Steps from 0 to 1 ms and from 10 to 11 ms; five tokens are in the cache from 1 ms on.
    requests = [ss.Request(0, 0, 5, 2), ss.Request(1, 10_000_000, 1, 1)]
    result = ss.simulate(
        requests, Pause(), cost=ss.cost.Affine(base_ms=1), kv=ss.KVCache(10, block_size=1)
    )
    assert result.end_ns == 11_000_000
    assert result.token_ns == 5 * 10 * 10**6
    assert result.block_ns == (5 * 10 + 7) * 10**6
    assert result.running_ns == (11 + 1) * 10**6


@given(run=strategies.runs(), steps=st.integers(0, 12))
@quick
def test_a_result_in_between_counts_who_is_there_so_far(run, steps):
    requests, policy, options = run
    engine = Engine(requests, policy, **options)
    for _ in range(steps):
        engine.advance()
    so_far = engine.result()
    here = [record.request for record in so_far.records]  # those who have come by now
    times = {r.request.id: r.e2e_ns for r in engine.run().records}
    assert so_far.system_ns == sum(min(times[r.id], so_far.end_ns - r.arrival_ns) for r in here)
