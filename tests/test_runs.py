"""Runs: a long list of whole numbers kept short."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servesim.runs import Runs

# Few values, so that runs begin, go on and break often.
small = st.integers(-3, 3)
pieces = st.lists(st.tuples(small, small, st.integers(0, 5)), max_size=12)


def plain(parts):
    return [value + i * step for value, step, count in parts for i in range(count)]


def extended(parts):
    runs = Runs()
    for part in parts:
        runs.extend(*part)
    return runs


def appended(values):
    runs = Runs()
    for value in values:
        runs.append(value)
    return runs


@given(parts=pieces)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_runs_behave_like_the_list_they_stand_for(parts):
    values, runs = plain(parts), extended(parts)
    assert list(runs) == values
    assert len(runs) == len(values)
    assert runs.total() == sum(values)
    counted = [v for v, n in runs.counts() for _ in range(n)]
    assert sorted(counted) == sorted(values)


@given(parts=pieces)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_equal_sequences_have_equal_runs_however_they_came_about(parts):
    assert extended(parts) == appended(plain(parts))


@given(a=st.lists(small, max_size=5), b=st.lists(small, max_size=5))
def test_runs_are_equal_only_if_the_sequences_are(a, b):
    assert (appended(a) == appended(b)) is (a == b)


def test_equal_spacing_is_one_run():
    runs = appended([7, 7, 7, 7, 9, 11, 13])
    assert runs.runs == [[7, 0, 4], [9, 2, 3]]
    assert repr(runs) == "Runs([7, 0, 4], [9, 2, 3])"
    runs = Runs()
    runs.extend(5, 0, 10**12)
    assert (len(runs), runs.total(), list(runs.counts())) == (10**12, 5 * 10**12, [(5, 10**12)])
    assert appended([7]).runs == [[7, 0, 1]]


@pytest.mark.parametrize("step", [-3, 0, 3])
def test_a_run_goes_on_however_long_it_is(step):
    runs, n = Runs(), 10**12
    runs.extend(5, step, n)
    runs.extend(5 + step * n, step, n)
    assert runs.runs == [[5, step, 2 * n]]
    assert runs.total() == 5 * 2 * n + step * n * (2 * n - 1)
    assert next(runs.counts()) == ((5, 1) if step else (5, 2 * n))


def test_runs_are_mutable_and_so_have_no_hash():
    with pytest.raises(TypeError):
        hash(Runs())
    assert appended([1]) != [1]
