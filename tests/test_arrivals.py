"""Arrivals: a workload is taken one request ahead, and checked on the way."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import servesim as ss
from servesim.arrivals import NOT_DUE, Arrivals
from servesim.request import LATEST_NS

LEAST, MOST = -(2**63), 2**63 - 1


def requests(ids):
    return [ss.Request(rid, 10 * i, 5, 5) for i, rid in enumerate(ids)]


def takes(what, check=None):
    """Take all, and return them; each is announced before it comes."""
    arrivals, taken = Arrivals(what, check), []
    while arrivals.next is not None:
        ahead = arrivals.next
        assert arrivals.due_at == ahead.arrival_ns
        assert arrivals.take() is ahead
        taken.append(ahead)
    assert arrivals.due_at == NOT_DUE > LATEST_NS
    assert arrivals.take() is None
    return taken


ids = st.lists(st.integers(0, 5) | st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST]), min_size=1)


@given(ids=ids, in_one=st.booleans())
def test_a_workload_is_taken_as_it_is_unless_an_id_comes_twice(ids, in_one):
    work = requests(ids)
    what = work if in_one else iter(work)
    if len(set(ids)) == len(ids):
        assert takes(what) == work
    else:
        (twice,) = [rid for i, rid in enumerate(ids) if rid in ids[:i]][:1]
        with pytest.raises(ss.InputError, match=f"^request {twice} appears twice: ids must be"):
            takes(what)


@pytest.mark.parametrize("ids", [[5, 5], [5, 3, 3], [5, 3, 5], [5, 3, 7, 7], [3, 5, 4, 5]])
def test_an_id_comes_once_in_any_order(ids):
    assert takes(requests(dict.fromkeys(ids))) == requests(dict.fromkeys(ids))
    with pytest.raises(ss.InputError, match=f"request {ids[-1]} appears twice"):
        takes(requests(ids))


def test_a_workload_is_in_order_of_arrival():
    at_once = [ss.Request(0, 0, 5, 5), ss.Request(1, 7, 5, 5), ss.Request(2, 7, 5, 5)]
    assert takes(at_once) == at_once
    with pytest.raises(
        ss.InputError, match=r"^request 3 arrives at 6 ns, before .* \(7 ns\): sort"
    ):
        takes([*at_once, ss.Request(3, 6, 5, 5)])


@pytest.mark.parametrize("make", [list, tuple, iter])
def test_each_request_is_checked_once(make):
    checked = Counter()
    assert len(takes(make(requests(range(4))), lambda r: checked.update([r.id]))) == 4
    assert checked == dict.fromkeys(range(4), 1)


def test_a_list_is_checked_before_the_run_and_anything_else_one_ahead():
    class TooLong(Exception):
        pass

    def check(r):
        if r.id == 3:
            raise TooLong

    with pytest.raises(TooLong):
        Arrivals(requests(range(4)), check)
    with pytest.raises(ss.InputError, match=r"only, not 'r1'$"):
        Arrivals([*requests(range(2)), "r1", *requests([3])], check)
    arrivals = Arrivals(iter(requests(range(4))), check)
    assert [arrivals.take().id for _ in range(2)] == [0, 1]
    with pytest.raises(TooLong):
        arrivals.take()


@pytest.mark.parametrize("make", [list, iter])
@pytest.mark.parametrize("check", [None, lambda r: None])
def test_only_requests_arrive(make, check):
    # A None in the midst of them is not their end.
    for wrong in ("r1", None, 4):
        with pytest.raises(ss.InputError, match=rf"only, not {wrong!r}$"):
            takes(make([*requests([1]), wrong, *requests([2])]), check)
    with pytest.raises(ss.InputError, match="the workload is empty"):
        Arrivals(make([]), check)
    with pytest.raises(ss.InputError, match=r"^requests must be a list of servesim\.Request"):
        Arrivals(4, check)
