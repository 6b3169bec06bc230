"""The lower bound on the makespan: no policy beats it, and some come close."""

import pytest
from hypothesis import given, settings

import servesim as ss
from servesim.bound import Prices, makespan_ns
from servesim.cost import OPT_13B_A100, SLOTS, TOY, Affine, Roofline, Work
from tests import strategies as s

LISTS = (OPT_13B_A100, TOY, Affine(1, 100, 7), Roofline("opt-13b", "a100"))


@settings(max_examples=300)
@given(s.runs())
def test_no_policy_beats_it(run):
    requests, policy, options = run
    result = ss.simulate(requests, policy, **options)
    served = [r.request for r in result.finished]  # some policies turn requests away
    for kv in (options["kv"], None) if served else ():
        assert result.makespan_ns >= options["cost"].lower_bound(served, kv)


@settings(max_examples=100)
@given(s.runs())
def test_nobody_is_done_sooner_than_alone(run):
    requests, policy, options = run
    for r in ss.simulate(requests, policy, **options).finished:
        assert r.e2e_ns >= options["cost"].lower_bound([r.request], options["kv"])


class Again:
    """Throws everyone out after each token: all tokens come from recomputation."""

    def plan(self, view):
        if view.running:
            return ss.Plan(preempted=[r.id for r in view.running])
        return ss.Plan([(r.id, r.missing) for r in view.waiting])


@pytest.mark.parametrize("prices", [TOY, SLOTS, Affine(prefill_us=1, decode_us=500)])
def test_a_token_may_come_from_a_recomputation(prices):
    """Where a prompt is cheap, to compute it anew beats decoding, and the bound knows."""
    requests = [ss.Request(i, 0, 2, 5) for i in range(4)]
    cunning = ss.simulate(requests, Again(), cost=prices).makespan_ns
    plain = ss.simulate(requests, ss.policies.Continuous(), cost=prices).makespan_ns
    assert prices.lower_bound(requests) <= cunning < plain


@pytest.mark.parametrize("prices", LISTS, ids=repr)
def test_one_request_alone_is_as_fast_as_the_bound(prices):
    """So it leaves nothing out. A roofline's loses a little: see `Roofline.lower_bound`."""
    requests = [ss.Request(0, 5, 400, 90)]
    took = ss.simulate(requests, ss.policies.Continuous(), cost=prices).makespan_ns
    share = 0.96 if isinstance(prices, Roofline) else 0.999999
    assert share * took <= prices.lower_bound(requests) <= took


def test_by_hand():
    """Two steps of 10 ms, 30 prompt tokens at 1 ms, one decode at 3 ms, its context at 1 µs."""
    prices = Affine(base_ms=10, prefill_us=1000, decode_us=3000, context_ns=1000)
    assert prices.lower_bound([ss.Request(0, 7, 30, 2)]) == 20_000_000 + 30_000_000 + 3_031_000


def prices(step=0, decode_step=0, prefill=0, decode=0, context=0, attention=0, one_prompt=False):
    """Return prices in nanoseconds."""
    each = (step, decode_step, prefill, decode, context, attention)
    return Prices(*(1000 * price for price in each), one_prompt)


@pytest.mark.parametrize(
    ("lengths", "priced", "room", "expected"),
    [
        # Steps: as many as the longest output has tokens; all but the first with a decode.
        ([(2, 3), (2, 2)], prices(step=7), None, 3 * 7),
        ([(2, 3), (2, 2)], prices(decode_step=10, prefill=100), None, 400 + 2 * 10),
        ([(5, 1), (4, 1)], prices(step=7, decode_step=10, decode=3), None, 7),
        # A decode for each token but the first of each; and what it reads: 5 and 6, then 8.
        ([(4, 3), (7, 2)], prices(prefill=10, decode=2), None, 110 + 3 * 2),
        ([(4, 3), (7, 2)], prices(prefill=10, context=2), None, 110 + (5 + 6 + 8) * 2),
        # Or a recomputation of prompt and first token, if that is cheaper than a decode ...
        ([(4, 3)], prices(prefill=1, decode=100), None, 4 + 2 * 5),
        ([(4, 3)], prices(prefill=1, decode=4, decode_step=100), None, 4 + 2 * 4 + 2 * (5 - 4)),
        # ... of which 2 a token are what a decode would cost for its context.
        ([(4, 3)], prices(prefill=3, decode=100, context=2), None, 12 + 2 * 5 + (5 + 6) * 2),
        ([(4, 3)], prices(prefill=1, decode=100, context=2), None, 4 + (5 + 6) * 1),
        # Nobody would compute the short prompt anew: it has but one token of output.
        ([(100, 3), (1, 1)], prices(decode_step=10, prefill=1, decode=1), None, 101 + 2 + 2 * 10),
        # Pairs of prompt tokens: 4 * 4 and 7 * 7.
        ([(4, 1), (7, 1)], prices(attention=2), None, (16 + 49) * 2),
        # Three that hold 10, 11 and 12 tokens in their steps, in room for 12: 99 / 12 steps, and
        # 69 / 12 with a decode. Without limit or with room for all it is 3 and 2.
        ([(10, 3)] * 3, prices(step=1, decode_step=10, prefill=100), 12, 3000 + 9 + 6 * 10),
        ([(10, 3)] * 3, prices(step=1, decode_step=10, prefill=100), 99, 3000 + 3 + 2 * 10),
        ([(10, 3)] * 3, prices(step=1, decode_step=10, prefill=100), None, 3000 + 3 + 2 * 10),
        # One prompt is charged, the longest; context is not in the bound, and a step that decodes
        # or computes anew costs 2 + 5 or more. It may be the one with the prompt.
        ([(10, 3), (4, 3)], prices(1, 2, 3, 5, 2, one_prompt=True), None, 3 + 30),
        ([(4, 11), (10, 11)], prices(1, 2, 3, 5, 2, one_prompt=True), None, 11 + 10 * 7),
        ([(10, 11), (4, 11)], prices(1, 2, 1, 50, 2, one_prompt=True), None, 11 + 10 * 5),
    ],
)
def test_each_price_by_hand(lengths, priced, room, expected):
    requests = [ss.Request(i, 7, *both) for i, both in enumerate(lengths)]
    assert makespan_ns(requests, priced, room) == expected
    # What is not a whole nanosecond is rounded up.
    assert makespan_ns(requests, priced._replace(step=priced.step + 1), room) == expected + 1
    if priced.step:
        assert makespan_ns(requests, priced._replace(step=priced.step - 1), room) == expected


def test_a_bound_needs_prices_room_and_requests():
    one = [ss.Request(0, 0, 4, 3)]
    assert makespan_ns(one, prices(step=1), 1) == 4 + 5 + 6
    for room in (0, -1, 1.5):
        with pytest.raises(ss.InputError, match="room must be a whole number, 1 or more"):
            makespan_ns(one, prices(step=1), room)
    with pytest.raises(ss.InputError, match=r"prices must be of class servesim\.bound\.Prices"):
        makespan_ns(one, (1, 2, 3, 4, 5, 6))
    with pytest.raises(ss.InputError, match=r"requests must hold servesim\.request\.Request"):
        makespan_ns([4], prices(step=1))


def test_what_is_rounded_down_in_a_step_is_not_in_the_bound():
    """1 ps of attention: less than a nanosecond a step, so it may cost nothing at all."""
    one = [ss.Request(0, 0, 1, 1)]
    for prices, ns in ((Affine(base_ms=1, attention_ps=1), 1_000_000), (Affine(attention_ps=1), 0)):
        assert prices.lower_bound(one) == prices.price_ns(Work(1, 0, 0, 1, 1)) == ns
    prices = Affine(prefill_us=1, decode_us=1, attention_ps=1)
    assert prices.lower_bound([ss.Request(0, 0, 100, 3000)]) == 100_000 + 2_999_000


def test_the_worst_moment_counts():
    """A long one at the start, or a short one at the end, whichever is done later."""
    prices = Affine(base_ms=1)
    early, late = ss.Request(0, 0, 1, 50), ss.Request(1, 10**9, 1, 2)
    assert prices.lower_bound([early]) == 50_000_000
    assert prices.lower_bound([late, early]) == 1_002_000_000


def test_memory_forces_steps():
    """Ten requests of 10 tokens in room for 20: two at a time, five rounds."""
    requests = [ss.Request(i, 0, 10, 1) for i in range(10)]
    prices, kv = Affine(base_ms=1), ss.KVCache(2, block_size=10)
    assert prices.lower_bound(requests) == 1_000_000
    assert prices.lower_bound(requests, kv) == 5_000_000
    assert ss.simulate(requests, ss.policies.Continuous(), cost=prices, kv=kv).end_ns == 5_000_000


def test_the_null_block_is_no_room():
    requests = [ss.Request(i, 0, 10, 1) for i in range(10)]
    kv = ss.KVCache(3, block_size=10, null_block=True)
    assert Affine(base_ms=1).lower_bound(requests, kv) == 5_000_000


def test_under_load_continuous_batching_comes_close():
    requests = ss.workload.poisson(200, 20.0, 512, (50, 300), seed=1)
    took = ss.simulate(requests, ss.policies.Continuous()).makespan_ns
    assert 0.85 * took < OPT_13B_A100.lower_bound(requests) <= took


def test_the_roofline_s_bound_is_the_better_of_two():
    """Prompts make it arithmetic, long outputs make it traffic; either bound is close."""
    prices = Roofline()
    for lengths, close in (((4000, 1), 0.9999), ((10, 500), 0.995), ((2000, 2000), 0.98)):
        requests = [ss.Request(i, 0, *lengths) for i in range(5)]
        took = ss.simulate(requests, ss.policies.Continuous(), cost=prices).makespan_ns
        assert close * took < prices.lower_bound(iter(requests)) <= took


@pytest.mark.parametrize("prices", [OPT_13B_A100, Roofline()])
def test_without_requests_there_is_nothing_to_bound(prices):
    with pytest.raises(ss.InputError, match="at least one request"):
        prices.lower_bound([])


class HalfPrice(Affine):
    def price_ns(self, work):
        return super().price_ns(work) // 2


class NoTraffic(Roofline):
    def memory_ns(self, work):
        return 0


@pytest.mark.parametrize("prices", [HalfPrice(base_ms=1), NoTraffic()])
def test_other_prices_do_not_inherit_the_bound(prices):
    """A policy would beat it."""
    with pytest.raises(ss.InputError, match=r"(HalfPrice|NoTraffic) changes how a step is priced"):
        prices.lower_bound([ss.Request(0, 0, 10, 5)])


def test_other_prices_may_bring_a_bound_of_their_own():
    class Bounded(HalfPrice):
        def price_ns(self, work):
            return super().price_ns(work)

        def lower_bound(self, requests, kv=None):
            return super().lower_bound(requests, kv) // 2

    class Named(Affine):
        """Changes nothing."""

    requests = [ss.Request(0, 0, 10, 5)]
    assert Named(base_ms=1).lower_bound(requests) == 5_000_000
    assert Bounded(base_ms=1).lower_bound(requests) == 2_500_000
