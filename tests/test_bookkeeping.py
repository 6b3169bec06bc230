"""What the engine writes down, on runs small enough to add up by hand."""

import inspect

import pytest

import servesim as ss
from servesim import cost
from servesim.engine import Engine
from servesim.plan import Plan
from servesim.policies import VLLM, Chunked, Continuous, Naive

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


# --- sums over time


def test_tokens_are_in_the_cache_from_the_end_of_their_step_until_their_request_leaves():
    # One after the other, 5 + 3 tokens each: 0, 5, 6 and 7 of them in the steps of each.
    result = ss.simulate(TWO, Naive(), cost=STEP)
    assert result.token_ns == 2 * (0 + 5 + 6 + 7) * MS


def test_time_in_the_system_counts_from_the_step_of_arrival_on():
    requests = [ss.Request(0, 0, 5, 3), ss.Request(1, 2, 5, 1)]
    result = ss.simulate(requests, Naive(), cost=STEP, arrivals_by_step=True)
    assert result.system_ns == (3 + 2) * MS


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
