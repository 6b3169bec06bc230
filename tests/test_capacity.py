"""The search for the highest rate that still keeps a promise."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import servesim as ss
from servesim.capacity import grid

LOWS = st.floats(0.05, 0.95)  # below the first rate that may fail
TOLERANCES = st.sampled_from((0.01, 0.05, 0.2, 1.0))


def brute(meets, tolerance):
    """The definition, over the whole grid."""
    rates = list(grid(0.05, 100, tolerance))
    kept = list(itertools.takewhile(meets, rates))
    return kept[-1] if kept else None


@given(limit=st.floats(1.5, 60), low=LOWS, tolerance=TOLERANCES)
def test_the_limit_is_found_within_the_tolerance(limit, low, tolerance):
    found = ss.capacity(lambda rate: rate <= limit, low=low, tolerance=tolerance)
    assert found.rate <= limit < found.fails_at
    assert found.fails_at <= found.rate * (1 + tolerance) * (1 + 1e-6)


@given(limit=st.floats(1.5, 60), low=LOWS, high=st.floats(70, 1000), tolerance=TOLERANCES)
def test_the_answer_is_the_same_from_any_start(limit, low, high, tolerance):
    def meets(rate):
        return rate <= limit

    found = ss.capacity(meets, low=low, high=high, tolerance=tolerance)
    assert found[:2] == ss.capacity(meets, tolerance=tolerance)[:2]


@given(bad=st.sets(st.integers(0, 80)), low=LOWS)
def test_where_it_is_not_monotone_every_lower_rate_has_to_pass(bad, low):
    """Rates fail here and there; whatever the start, the first that fails ends it."""
    rates = list(grid(1.0, 100, 0.05))
    fails = {rates[i] for i in bad}

    def meets(rate):
        return rate not in fails

    found = ss.capacity(meets, low=low)
    assert found.rate == brute(meets, 0.05)
    assert found.fails_at == min(fails, default=None)


def test_a_dip_is_not_jumped_over_as_halving_does():
    """It fails at 3 to 3.2 requests/s, then passes up to 8: a lucky run is no capacity."""

    def meets(rate):
        return not 3 <= rate <= 3.2 and rate <= 8

    low, high = 0.5, 64.0
    for _ in range(20):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if meets(middle) else (low, middle)
    assert low > 7.9
    starts = [ss.capacity(meets, low=start, tolerance=0.02) for start in (0.1, 0.5, 1, 2, 2.9)]
    assert len({found.rate for found in starts}) == 1
    assert 3 / 1.02 <= starts[0].rate < 3 <= starts[0].fails_at


def test_a_real_search_agrees_with_its_definition():
    slo = ss.SLO(500, 40)

    def meets(rate):
        requests = ss.workload.poisson(40, rate, prompt=256, output=(20, 80), seed=2)
        return ss.simulate(requests, ss.policies.Chunked(256)).p99_within(slo)

    found = ss.capacity(meets, low=2, tolerance=0.3)
    assert found == ss.capacity(meets, low=2, tolerance=0.3)
    assert found.rate == max(
        rate
        for rate in grid(2, 20, 0.3)
        if all(meets(lower) for lower in grid(2, 20, 0.3) if lower <= rate)
    )
    assert meets(found.rate)
    assert not meets(found.fails_at)


def test_at_the_ends_of_the_grid():
    assert ss.capacity(lambda rate: False) == (None, float(f"{1.05**-47:.8g}"), 1)
    found = ss.capacity(lambda rate: True, low=1, high=2, tolerance=0.5)
    assert found == (1.5, None, 2)
    assert str(found) == "1.50 or more"
    assert str(ss.capacity(lambda rate: False)) == "below 0.10"
    assert str(ss.capacity(lambda rate: rate < 2)) == "1.98"


def test_the_highest_rate_looked_at_is_100():
    assert 99 < ss.capacity(lambda rate: True, tolerance=0.01).rate <= 100


@pytest.mark.parametrize("tolerance", [0.01, 0.05, 1.0])
def test_each_rate_of_a_grid_is_a_grid_of_its_own(tolerance):
    """Ends included, and whatever a logarithm rounds to."""
    rates = list(grid(1e-6, 1e6, tolerance))
    assert all(list(grid(rate, rate, tolerance)) == [rate] for rate in rates)


def test_one_request_a_second_is_on_every_grid():
    for tolerance in (0.001, 0.01, 0.03, 0.3, 1):
        assert 1.0 in grid(0.5, 2, tolerance)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"low": 0}, "low must be a number from 1e-06 to 1e\\+06, not 0"),
        ({"low": 1e6 + 1}, "low must be a number from 1e-06 to 1e\\+06"),
        ({"high": 1e6 + 1}, "high must be a number from 1e-06 to 1e\\+06"),
        ({"low": True}, "low must be a number"),
        ({"high": float("nan")}, "high must be a number"),
        ({"tolerance": 0}, "tolerance must be a number from 0.001 to 1, not 0"),
        ({"tolerance": "5%"}, "tolerance must be a number"),
        ({"low": 1.01, "high": 1.02}, "no rate of the grid lies from 1.01 to 1.02"),
        ({"low": 5, "high": 1}, "no rate of the grid lies from 5 to 1"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(options, sentence):
    with pytest.raises(ss.InputError, match=sentence):
        ss.capacity(lambda rate: True, **options)
