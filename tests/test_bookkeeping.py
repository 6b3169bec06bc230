"""What the engine writes down, on runs small enough to add up by hand."""

import inspect
import itertools

import pytest

import servesim as ss
from servesim import cost
from servesim.engine import Engine
from servesim.kv import UNLIMITED
from servesim.plan import Plan
from servesim.policies import VLLM, Chunked, Continuous, Naive
from servesim.request import LATEST_NS

MS = 10**6
STEP = cost.Affine(base_ms=1)
TWO = [ss.Request(0, 0, 5, 4), ss.Request(1, 0, 5, 4)]


class Joins:
    """Takes everybody in; then `then` says what the plan is."""

    def plan(self, view):
        if view.waiting:
            return Plan([(r.id, r.missing) for r in view.waiting])
        return self.then(view)


class Promises(Joins):
    """Lets only the first decode, and promises to go on so."""

    def then(self, view):
        return Plan([(view.running[0].id, 1)], repeatable=True)


class Names(Joins):
    """Names all that decode, and promises to go on so."""

    def then(self, view):
        return Plan([(r.id, 1) for r in view.running], repeatable=True)


class Expects(Continuous):
    """Reserves room for 34 tokens of output, whoever comes."""

    def predict(self, prompt_len, output_len):
        return 34


class OutOfRoom(Continuous):
    """Reserves room for one token of output; throws the second out in the third step."""

    def predict(self, prompt_len, output_len):
        return 1

    def plan(self, view):
        if view.step == 2 and len(view.running) > 1:
            return Plan(decode_all=True, preempted=[view.running[1].id])
        return super().plan(view)


# --- options


def test_the_engine_s_defaults_are_those_of_simulate():
    parameters = [
        {name: p.default for name, p in inspect.signature(f).parameters.items() if name != "self"}
        for f in (Engine, ss.simulate)
    ]
    assert parameters[0] == parameters[1]


@pytest.mark.parametrize("option", ["max_model_len", "max_steps", "stall_steps"])
def test_a_limit_may_be_as_low_or_as_high_as_it_says(option):
    least = 0 if option == "max_steps" else 1
    for limit in (least, UNLIMITED):
        Engine(TWO, Naive(), **{option: limit})
    for limit in (least - 1, UNLIMITED + 1):
        with pytest.raises(ss.InputError, match=f"^{option} must be a whole number, {least} or"):
            Engine(TWO, Naive(), **{option: limit})


def test_the_clock_may_reach_its_end():
    def run(price):
        class Dear:
            def price_ns(self, work):
                return price

        return ss.simulate([ss.Request(0, 0, 5, 1)], Naive(), cost=Dear())

    assert run(LATEST_NS).end_ns == LATEST_NS
    with pytest.raises(ss.InputError, match="lower the prices"):
        run(LATEST_NS + 1)


def test_a_run_has_the_name_of_its_policy():
    class Plain(Joins):
        then = None

    assert ss.simulate([ss.Request(0, 0, 5, 1)], Plain()).policy == "Plain"


def test_a_budget_of_one_token_is_told():
    assert ss.simulate([ss.Request(0, 0, 5, 1)], Chunked(1)).token_budget == 1


# --- sums over time


def test_tokens_are_in_the_cache_from_the_end_of_their_step_until_their_request_leaves():
    # One after the other, 5 + 3 tokens each: 0, 5, 6 and 7 of them in the steps of each.
    result = ss.simulate(TWO, Naive(), cost=STEP)
    assert result.token_ns == 2 * (0 + 5 + 6 + 7) * MS


def test_time_in_the_system_counts_from_the_step_of_arrival_on():
    requests = [ss.Request(0, 0, 5, 3), ss.Request(1, 2, 5, 1)]
    result = ss.simulate(requests, Naive(), cost=STEP, arrivals_by_step=True)
    assert result.system_ns == (3 + 2) * MS


def test_a_run_by_steps_begins_at_time_zero_whenever_the_first_arrives():
    result = ss.simulate([ss.Request(0, 7, 5, 3)], Naive(), cost=STEP, arrivals_by_step=True)
    assert (result.start_ns, result.end_ns) == (0, 3 * MS)


def test_who_waits_when_a_run_is_cut_short_was_never_in_the_batch():
    result = ss.simulate(TWO, Naive(), cost=STEP, max_steps=3)
    assert (result.running_ns, result.system_ns) == (3 * MS, 2 * 3 * MS)
    assert result.promised_ns == (5 + 4 - 1) * 3 * MS


def test_no_more_steps_are_taken_at_once_than_a_run_may_have():
    requests = [ss.Request(0, 0, 5, 1000)]
    result = ss.simulate(requests, Continuous(), cost=STEP, max_steps=300)
    assert (result.steps, result.outcome) == (300, "max_steps")
    assert result.records[0].output_tokens == 300
    assert list(result.records[0].gaps) == [MS] * 299


def test_looking_at_a_run_between_its_steps_changes_nothing():
    # The first has a gap of its own (the other's prompt), and they go on together.
    requests = [ss.Request(0, 0, 5, 40), ss.Request(1, 3 * MS, 5, 40)]
    engine = Engine(requests, Continuous(), cost=STEP, max_steps=None, skip=False)
    while engine.advance():
        engine.result()
        engine.result()
    quick = Engine(requests, Continuous(), cost=STEP)
    while quick.advance():
        quick.result()
        quick.result()
    expected = [list(r.gaps) for r in ss.simulate(requests, Continuous(), cost=STEP).records]
    assert [list(r.gaps) for r in engine.result().records] == expected
    assert [list(r.gaps) for r in quick.result().records] == expected


@pytest.mark.parametrize("counted", [True, False])
def test_who_was_turned_away_has_no_token(counted):
    class Refuses:
        def plan(self, view):
            return Plan(rejected=[r.id for r in view.waiting])

    result = ss.simulate(TWO, Refuses(), count_first_token=counted)
    assert [(r.status, r.output_tokens) for r in result.records] == [("rejected", 0)] * 2


@pytest.mark.parametrize("policy", [Naive(), Continuous()])
def test_everybody_is_reported_once_also_whom_the_cache_cannot_hold(policy):
    requests = [*TWO, ss.Request(2, 0, 500, 2)]
    reported = []
    options = {"kv": ss.KVCache(4), "never_fits": "reject", "on_done": reported.append}
    ss.simulate(requests, policy, **options)
    assert sorted((r.request.id, r.status) for r in reported) == [
        (0, "finished"),
        (1, "finished"),
        (2, "rejected"),
    ]


@pytest.mark.parametrize("skip", [True, False])
def test_a_first_token_inside_a_step_waits_for_prompts_and_for_no_decoding(skip):
    class Both(Joins):
        then = staticmethod(lambda view: Plan(decode_all=True))

        def plan(self, view):
            if view.waiting and view.running:
                return Plan([(0, 1), (1, 5)])
            return super().plan(view)

    requests = [ss.Request(0, 0, 5, 9), ss.Request(1, 3 * MS, 5, 9)]
    prices = cost.Affine(base_ms=1, prefill_us=1)
    result = ss.simulate(requests, Both(), cost=prices, stamp_inside_step=True, skip=skip)
    joined = result.records[1].first_scheduled_ns
    assert result.records[1].first_token_ns - joined == prices.prefill_ns(5)


def test_a_request_may_reach_the_model_s_length_with_its_first_token():
    requests = [ss.Request(0, 0, 5, 40)]
    result = ss.simulate(requests, Continuous(), cost=STEP, max_model_len=6)
    assert (result.records[0].output_tokens, result.steps) == (1, 1)


def test_prompts_in_chunks_attend_to_as_many_pairs_as_in_one_piece():
    result = ss.simulate([ss.Request(0, 0, 50, 1)], Chunked(16), record_steps=True)
    assert len(result.step_records) == 4
    assert sum(s.work.attention_pairs for s in result.step_records) == 50**2


@pytest.mark.parametrize(("padded", "prefill", "pairs"), [(0, 30, 500), (20, 40, 800)])
def test_padding_makes_short_prompts_as_long_as_the_longest(padded, prefill, pairs):
    class Pads:
        def plan(self, view):
            return Plan([(0, 20), (1, 10)], padded_prompt=padded)

    requests = [ss.Request(0, 0, 20, 1), ss.Request(1, 0, 10, 1)]
    (step,) = ss.simulate(requests, Pads(), record_steps=True).step_records
    assert step.work == (prefill, 0, 0, pairs, 20)


def test_blocks_on_record_add_up_while_somebody_rests():
    run = ss.simulate(TWO, Promises(), kv=ss.KVCache(20, block_size=1), record_steps=True)
    held = [sum(s.blocks.values()) + s.free_blocks[1] for s in run.step_records]
    assert held == [20] * 7
    # 5 and 5, then one more each step for the first, and so on with the second alone.
    assert [s.free_blocks[1] for s in run.step_records] == [10, 9, 8, 7, 14, 13, 12]


def test_who_waits_in_the_midst_of_its_prompt_buys_nothing():
    class Chunks(Joins):
        """The second rests when a block is full, until the first is done."""

        def plan(self, view):
            if view.waiting:
                return Plan([(0, 16), (1, 16)])
            if view.running[0].id == 0:
                return Plan(decode_all=True)
            return Plan([(1, view.running[0].missing)])

    requests = [ss.Request(0, 0, 16, 3), ss.Request(1, 0, 40, 1)]
    run = ss.simulate(requests, Chunks(), kv=ss.KVCache(6), record_steps=True)
    assert [s.blocks for s in run.step_records] == [
        {0: 1, 1: 1},
        {0: 2, 1: 1},
        {0: 2, 1: 1},
        {1: 3},
    ]


def test_reasons_of_a_plan_that_only_turns_away_are_kept_for_the_next_step():
    class Refuses:
        def plan(self, view):
            if len(view.waiting) == 2:
                return Plan(rejected=[1], reasons={1: "r1 goes"})
            return Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])

    first, *others = ss.simulate(TWO, Refuses(), record_steps=True).step_records
    assert (first.rejected, first.paused) == ([1], {1: "r1 goes"})
    assert not any(step.rejected or step.paused for step in others)


def test_reasons_of_a_plan_that_waits_are_kept_for_the_next_step():
    class Waits:
        def plan(self, view):
            if view.more_to_come:
                return Plan(wait=True, reasons={0: "r0 waits for company"})
            return Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])

    requests = [ss.Request(0, 0, 5, 2), ss.Request(1, 7, 5, 2)]
    first, second = ss.simulate(requests, Waits(), record_steps=True).step_records
    assert (first.start_ns, first.paused) == (7, {0: "r0 waits for company"})
    assert not second.paused


@pytest.mark.parametrize(
    ("plans", "scheduled"),
    [
        # Nothing is computed, so it is no step, and the policy is asked again.
        ([Plan([(0, 5)]), Plan(rejected=[2])], [[0], [0, 1]]),
        ([Plan(rejected=[2], decode_all=True)], [[0, 1]]),
        # Somebody is in the plan, or is thrown out: it is a step.
        ([Plan([(0, 5)]), Plan([(1, 5)], rejected=[2])], [[0], [1], [0, 1]]),
        ([Plan([(0, 5)]), Plan(rejected=[2], decode_all=True)], [[0], [0], [0, 1]]),
        ([Plan([(0, 5)]), Plan(rejected=[2], preempted=[0])], [[0], [], [0, 1]]),
    ],
)
def test_a_plan_that_turns_away_is_a_step_if_it_does_more(plans, scheduled):
    class Scripted:
        def plan(self, view):
            return plans[asked] if (asked := next(count)) < len(plans) else rest.plan(view)

    count, rest = itertools.count(), Continuous()
    requests = [ss.Request(i, 0, 5, 4) for i in range(3)]
    run = ss.simulate(requests, Scripted(), cost=STEP, record_steps=True)
    steps = [sorted(s.id for s in step.scheduled) for step in run.step_records]
    assert steps[: len(scheduled)] == scheduled
    assert (run.count("rejected"), run.count("finished")) == (1, 2)


# --- steps taken at once


def test_nobody_is_made_to_decode_whom_the_plan_leaves_out():
    runs = [ss.simulate(TWO, Promises(), cost=STEP, skip=skip) for skip in (True, False)]
    ends = [[r.e2e_ns for r in run.records] for run in runs]
    assert ends == [[4 * MS, 7 * MS]] * 2


def test_naming_all_that_decode_is_as_quick_as_decode_all():
    requests = [ss.Request(i, 0, 5, 500) for i in range(2)]
    result = ss.simulate(requests, Names(), cost=STEP)
    assert result.steps == 500
    assert result.engine_iterations <= 3


@pytest.mark.parametrize("prices", [STEP, cost.Roofline()])
def test_many_steps_are_priced_at_once_and_none_beyond_the_next_arrival(prices, monkeypatch):
    stretches = []
    pass_time = Engine._pass_time
    monkeypatch.setattr(Engine, "_pass_time", lambda *a: (stretches.append(a[1]), pass_time(*a))[1])
    requests = [ss.Request(0, 0, 5, 1000), ss.Request(1, 100 * MS, 5, 1)]
    engine = Engine(requests, Continuous(), cost=prices)
    asked = []
    if several := engine.prices_ns:
        engine.prices_ns = lambda work, n, most: asked.append(most) or several(work, n, most)
    assert engine.run().steps == sum(stretches) >= 1000
    assert len(stretches) < 20
    if asked:
        # None is cheaper than the first, so that no more than these fit.
        assert asked[0] <= 100 * MS // prices.price_ns(cost.Work(0, 1, 6)) + 1


def test_a_price_list_may_be_free_of_charge():
    class Free:
        def price_ns(self, work):
            return 0

    result = ss.simulate(TWO, Naive(), cost=Free())
    assert (result.end_ns, result.count("finished")) == (0, 2)


def test_steps_in_a_row_may_be_free_of_charge():
    class Free:
        def price_ns(self, work):
            return 0

        def prices_ns(self, work, decodes, most):
            return [0] * most

    result = ss.simulate(TWO, Continuous(), cost=Free())
    assert (result.end_ns, result.steps, result.count("finished")) == (0, 4, 2)


@pytest.mark.parametrize("skip", [True, False])
def test_a_promise_that_goes_with_a_preemption_does_not_hold(skip):
    class Throws(Continuous):
        """Throws the second out in the third step, and promises to go on so."""

        def plan(self, view):
            if view.step == 0:
                return Plan([(0, 5), (1, 5)])
            if view.step == 1:
                return Plan(decode_all=True)
            if view.step == 2:
                return Plan(decode_all=True, preempted=[1], repeatable=True)
            return super().plan(view)

    requests = [ss.Request(i, 0, 5, 10) for i in range(2)]
    run = ss.simulate(requests, Throws(), cost=STEP, skip=skip)
    assert [r.e2e_ns for r in run.records] == [10 * MS, 11 * MS]


@pytest.mark.parametrize("skip", [True, False])
def test_a_promise_of_nobody_is_an_empty_step(skip):
    class Rests(Joins):
        def then(self, view):
            return Plan(decode_all=view.step > 2, repeatable=True)

    run = ss.simulate(TWO, Rests(), cost=STEP, skip=skip)
    assert [r.e2e_ns for r in run.records] == [(4 + 2) * MS] * 2


@pytest.mark.parametrize("skip", [True, False])
def test_a_promise_that_goes_with_a_chunk_does_not_hold(skip):
    class Chunks(Joins):
        """Four tokens of each prompt in each step, and promises to go on so."""

        def plan(self, view):
            rest = [r for r in (*view.running, *view.waiting) if not r.decoding]
            chunks = [(r.id, min(4, r.missing)) for r in rest]
            return Plan(chunks, decode_all=True, repeatable=True)

    requests = [ss.Request(0, 0, 4, 10), ss.Request(1, 0, 16, 10)]
    run = ss.simulate(requests, Chunks(), cost=STEP, skip=skip)
    assert [r.e2e_ns for r in run.records] == [10 * MS, 13 * MS]


@pytest.mark.parametrize("skip", [True, False])
def test_who_is_named_unseen_needs_the_blocks_that_it_needs_now(skip):
    class Unseen:
        """Never looks at a request."""

        def plan(self, view):
            if view.step == 0:
                return Plan([(0, 16), (1, 16)])
            # Both have bought their second block in the second step; none is left.
            return Plan([(0, 1)] if view.waiting else [], not view.waiting, repeatable=True)

    requests = [*(ss.Request(i, 0, 16, 9) for i in range(2)), ss.Request(2, 3 * MS, 1, 1)]
    run = ss.simulate(requests, Unseen(), cost=STEP, kv=ss.KVCache(4), skip=skip, max_steps=6)
    assert [r.output_tokens for r in run.records] == [6, 3, 0]


@pytest.mark.parametrize("student_s", [True, False])
def test_an_interrupt_in_a_policy_of_ours_is_not_put_down_to_it(student_s, monkeypatch):
    def plan(self, view):
        raise KeyboardInterrupt

    class Own(Continuous):
        pass

    monkeypatch.setattr(Continuous, "plan", plan)
    with pytest.raises(KeyboardInterrupt) as caught:
        ss.simulate(TWO, Own() if student_s else Continuous())
    assert hasattr(caught.value, "__notes__") == student_s


def test_an_interrupt_in_a_policy_ends_the_run():
    class Interrupted:
        def plan(self, view):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        ss.simulate(TWO, Interrupted())
    assert caught.value.__notes__[0].startswith("in step 0")


# --- what fits, and who outgrows what it has reserved


@pytest.mark.parametrize(
    ("policy", "asked", "options", "needs"),
    [
        # 16 + 34 - 1 tokens reserved, although 31 would do.
        (Expects(), (16, 16), {}, 4),
        (Expects(), (15, 16), {}, 3),
        # The last token is never cached; a first token that does not count makes one more.
        (VLLM(), (16, 1), {}, 1),
        (VLLM(), (16, 1), {"count_first_token": False}, 2),
        # No more than the model's length.
        (VLLM(), (16, 100), {"max_model_len": 33}, 2),
        (VLLM(), (16, 100), {"max_model_len": 34}, 3),
    ],
)
def test_a_request_needs_room_for_what_it_will_cache_or_has_reserved(policy, asked, options, needs):
    requests = [ss.Request(0, 0, *asked)]
    run = ss.simulate(requests, policy, kv=ss.KVCache(needs), **options)
    assert run.peak_blocks == needs
    said = f"it needs {needs} KV blocks and there are {needs - 1};"
    if needs > 1:
        with pytest.raises(ss.InputError, match=said):
            ss.simulate(requests, policy, kv=ss.KVCache(needs - 1), **options)


def test_a_prediction_is_no_reservation():
    class OnDemand(ss.policies.ShortestFirst):
        def predict(self, prompt_len, output_len):
            return 1000

    run = ss.simulate([ss.Request(0, 0, 16, 5)], OnDemand(), kv=ss.KVCache(2))
    assert run.count("finished") == 1


def test_a_prediction_may_be_refused_in_the_policy_s_own_words():
    class Refuses(Continuous):
        def predict(self, prompt_len, output_len):
            raise ss.InputError("prompts are at least 6 tokens long here")

    with pytest.raises(ss.InputError, match=r"^prompts are at least 6 tokens long here$"):
        ss.simulate(TWO, Refuses())


def test_a_contiguous_cache_says_that_it_needs_the_blocks_side_by_side():
    with pytest.raises(ss.InputError, match="needs 3 KV blocks and there are 2 side by side;"):
        ss.simulate([ss.Request(0, 0, 40, 5)], Continuous(), kv=ss.KVCache(2, contiguous=True))


@pytest.mark.parametrize("skip", [True, False])
def test_who_is_thrown_out_while_others_outgrow_their_reservation_gets_nothing(skip):
    requests = [ss.Request(i, 0, 16, 20) for i in range(3)]
    runs = [
        ss.simulate(requests, policy, cost=STEP, kv=ss.KVCache(9), skip=skip)
        for policy in (OutOfRoom(), Continuous())
    ]
    assert [run.preemptions for run in runs] == [1, 0]
    ends = [[r.e2e_ns for r in run.records] for run in runs]
    assert ends == [[20 * MS, 21 * MS, 20 * MS], [20 * MS] * 3]


def test_who_outgrows_its_reservation_may_rest():
    class Rests(OutOfRoom):
        """All rest but the first, until it is done."""

        def plan(self, view):
            if view.waiting:
                return super().plan(view)
            return Plan([(view.running[0].id, 1)])

    requests = [ss.Request(i, 0, 16, 4) for i in range(2)]
    run = ss.simulate(requests, Rests(), cost=STEP, kv=ss.KVCache(9))
    assert [r.e2e_ns for r in run.records] == [4 * MS, 7 * MS]


def test_nonsense_is_refused_also_from_who_has_outgrown_its_reservation():
    class Silent(OutOfRoom):
        def plan(self, view):
            return None if view.step == 2 else super().plan(view)

    requests = [ss.Request(i, 0, 16, 20) for i in range(2)]
    with pytest.raises(ss.PlanError, match="returned None"):
        ss.simulate(requests, Silent(), cost=STEP, kv=ss.KVCache(9))


def test_who_is_in_the_midst_of_its_prompt_gets_nothing_when_others_outgrow_theirs():
    class Chunks(Continuous):
        """Half of the second's prompt comes in the first step, half when the first is done."""

        def predict(self, prompt_len, output_len):
            return 1

        def plan(self, view):
            if view.waiting:
                return Plan([(0, 16), (1, 8)])
            if view.running[0].id == 0:
                return Plan(decode_all=True)
            return Plan([(1, view.running[0].missing)])

    requests = [ss.Request(i, 0, 16, 3) for i in range(2)]
    run = ss.simulate(requests, Chunks(), cost=STEP, kv=ss.KVCache(9), record_steps=True)
    assert [s.scheduled[-1].tokens for s in run.step_records] == [8, 1, 1, 8, 1, 1]


def test_waiting_for_a_step_is_no_stall_even_if_steps_are_free_of_charge():
    class Free:
        def price_ns(self, work):
            return 0

    class Idle(Joins):
        """Does nothing until both are there."""

        def plan(self, view):
            return super().plan(view) if view.step >= 9 else Plan()

        def then(self, view):
            return Plan(decode_all=True)

    requests = [ss.Request(0, 0, 5, 2), ss.Request(1, 9, 5, 2)]
    options = {"cost": Free(), "on_stall": "record", "arrivals_by_step": True}
    run = ss.simulate(requests, Idle(), **options)
    assert (run.outcome, run.steps) == ("completed", 9 + 2)


def test_a_prediction_claims_room_only_where_it_is_reserved():
    claims = [
        ss.simulate(TWO, policy, cost=STEP, kv=ss.KVCache(9)).claimed_ns
        for policy in (ss.policies.ShortestFirst(), Continuous())
    ]
    assert claims == [0, 2 * (5 + 4 - 1) * 4 * MS]


def test_a_stall_is_counted_from_the_last_time_that_anybody_got_further():
    class Circles:
        """Lets it decode for a while, then computes all but the last of that, over and over."""

        def plan(self, view):
            if view.step == 0:
                return Plan([(0, 5)])
            if view.step <= 6:
                return Plan(decode_all=True)
            if view.running:
                return Plan(preempted=[0])
            return Plan([(0, 10)])

    with pytest.raises(ss.PlanError, match="rule 'progress'") as caught:
        ss.simulate([ss.Request(0, 0, 5, 100)], Circles(), cost=STEP)
    assert caught.value.step == 6 + 1000
