"""The lower bound on the makespan: no policy beats it, and some come close."""

import pytest
from hypothesis import given, settings

import servesim as ss
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
