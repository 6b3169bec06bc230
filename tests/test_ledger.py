"""The ledger: one row of whole numbers per request, and the gaps that they share."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.ledger import COLUMNS, NEVER, STATUSES, Ledger, Record, TickLog
from servesim.runs import Runs

VAST = 10**12  # ticks: nobody goes through them one by one

# Few values, so that runs begin, go on and break often.
small, weights = st.integers(-2, 2), st.integers(0, 2)
stretches = st.tuples(small, small, st.integers(0, 4), weights)
lists = st.tuples(st.lists(small, max_size=4), weights)
pieces = st.lists(stretches | lists, max_size=8)


def logged(parts):
    log = TickLog()
    for part in parts:
        log.extend(*part) if len(part) == 4 else log.extend_each(*part)
    return log


def plain(parts):
    """Return the gap and the weight of each tick."""
    ticks = []
    for *what, weight in parts:
        if len(what) == 3:
            value, step, count = what
            what = [[value + i * step for i in range(count)]]
        ticks += [(gap, weight) for gap in what[0]]
    return ticks


# --- the gaps between ticks


@given(parts=pieces)
@settings(max_examples=300)
def test_a_log_stands_for_a_list_and_looks_the_same_however_it_came_about(parts):
    ticks, runs = plain(parts), list(logged(parts).runs())
    assert [(v + i * s, w) for v, s, n, w in runs for i in range(n)] == ticks
    assert runs == list(logged([([gap], weight) for gap, weight in ticks]).runs())
    assert runs == list(logged([(gap, 7, 1, weight) for gap, weight in ticks]).runs())


@given(parts=pieces, more=pieces)
def test_a_log_can_be_read_and_goes_on(parts, more):
    log = logged(parts)
    first = list(log.runs())
    assert list(log.runs()) == first
    for part in more:
        log.extend(*part) if len(part) == 4 else log.extend_each(*part)
    both = [(v + i * s, w) for v, s, n, w in log.runs() for i in range(n)]
    assert both == plain(parts) + plain(more)


@given(parts=pieces, data=st.data())
def test_any_part_of_a_log_can_be_copied(parts, data):
    ticks = [gap for gap, _ in plain(parts)]
    first = data.draw(st.integers(0, len(ticks)))
    last = data.draw(st.integers(first, len(ticks)))
    gaps = Runs()
    logged(parts).copy_to(gaps, first, last)
    assert list(gaps) == ticks[first:last]


def test_equal_spacing_is_one_run_however_long():
    log = logged([(5, 0, VAST, 3), (5, 0, VAST, 3), (7, 0, VAST, 0), ([7], 2), (9, 2, VAST, 2)])
    expected = [(5, 0, 2 * VAST, 3), (7, 0, VAST, 0), (7, 2, VAST + 1, 2)]
    assert list(log.runs()) == expected
    gaps = Runs()
    log.copy_to(gaps, VAST, 4 * VAST)
    assert gaps.runs == [[5, 0, VAST], [7, 0, VAST + 1], [9, 2, VAST - 1]]


# --- rows


R = [ss.Request(7 * i, 100 * i, 20 + i, 5, priority=i, tenant="ab"[:i]) for i in range(4)]


def ledger_of_four():
    """Build one of each kind: done, turned away, on its way, and done with its first token."""
    ledger = Ledger(TickLog())
    rows = [ledger.open() for _ in R]
    ledger.log.extend(10, 0, 2, 1)  # the first two ticks: one request saw them
    ledger.log.extend(10, 0, 1, 0)  # the third: nobody did
    ledger.log.extend(30, 5, 2, 1)
    ledger.log.extend(40, 5, 2, 0)
    stints = [(NEVER, 0, 2), (50, 2, 2), (60, 3, 5)]
    ledger.write(rows[0], R[0], "finished", 1, 2, 197, 7, 2, stints)
    ledger.write(rows[1], R[1], "rejected")
    ledger.write(rows[2], R[2], "unfinished", 210, 220, 270, 2, 1, [(50, 7, 7)])
    ledger.write(rows[3], R[3], "finished", 310, 320, 320, 1)
    return ledger


GAPS = [10, 10, 50, 60, 30, 35], [], [50], []


def test_a_row_reads_as_the_record_that_was_written():
    ledger = ledger_of_four()
    assert len(ledger) == 4
    assert [list(record.gaps) for record in ledger] == list(GAPS)
    one, two, three, four = ledger
    assert one == Record(R[0], "finished", 1, 2, 197, 7, 2, one.gaps)
    assert two == Record(R[1], "rejected")
    assert (two.output_tokens, two.preemptions, two.ttft_ns, two.e2e_ns) == (0, 0, None, None)
    assert three == Record(R[2], "unfinished", 210, 220, 270, 2, 1, three.gaps)
    assert four == Record(R[3], "finished", 310, 320, 320, 1)
    assert [ledger.request(row) for row in range(4)] == R


def test_a_ledger_reads_like_a_list():
    ledger = ledger_of_four()
    records = list(ledger)
    assert ledger == records
    assert ledger == ledger_of_four()
    assert ledger != records[1:]
    assert ledger != 4
    for index in (0, 3, -1, -4, slice(1, 3), slice(None, None, -2), slice(9, 12)):
        assert ledger[index] == records[index]
    for index in (4, -5):
        with pytest.raises(IndexError):
            ledger[index]
    with pytest.raises(TypeError):
        hash(ledger)


def test_a_column_has_a_number_for_each_row():
    ledger = ledger_of_four()
    assert [STATUSES[code] for code in ledger.column("status")] == [r.status for r in ledger]
    for name in ("id", "arrival_ns", "prompt_len", "output_len", "priority"):
        assert list(ledger.column(name)) == [getattr(r, name) for r in R]
    for name in ("first_scheduled_ns", "first_token_ns", "last_token_ns"):
        times = [NEVER if (t := getattr(r, name)) is None else t for r in ledger]
        assert list(ledger.column(name)) == times
    assert list(ledger.column("output_tokens")) == [7, 0, 2, 1]
    assert list(ledger.column("preemptions")) == [2, 0, 1, 0]
    assert list(ledger.column("gap")) == [NEVER, NEVER, 50, NEVER]
    assert [len(ledger.column(name)) for name in COLUMNS] == [4] * len(COLUMNS)
    assert [ledger.rows(status) for status in STATUSES] == [[2], [0, 3], [1]]


def test_latencies_of_all_are_those_of_each():
    ledger = ledger_of_four()
    assert list(ledger.ttft_ns()) == [r.ttft_ns for r in ledger] == [2, None, 20, 20]
    assert list(ledger.e2e_ns()) == [r.e2e_ns for r in ledger] == [197, None, None, 20]
    assert list(ledger.tpot_ns()) == [r.tpot_ns for r in ledger] == [195 / 6, None, None, None]


def test_gaps_are_counted_once_per_request_that_saw_them():
    counts = sorted(ledger_of_four().gap_counts())
    assert counts == sorted(Counter(itertools.chain(*GAPS)).items())
    assert counts == [(10, 2), (30, 1), (35, 1), (50, 2), (60, 1)]
    ledger = Ledger(logged([(5, 0, VAST, 3), (8, 1, VAST, 0), (6, 2, 3, 2)]))
    assert list(ledger.gap_counts()) == [(5, 3 * VAST), (6, 2), (8, 2), (10, 2)]


def test_tokens_come_a_gap_apart():
    times = [2, *itertools.accumulate(GAPS[0], initial=2)][1:]
    one, two, three, four = ledger_of_four()
    assert list(one.token_times_ns()) == times == [2, 12, 22, 72, 132, 162, 197]
    assert list(two.token_times_ns()) == []
    assert list(three.token_times_ns()) == [220, 270]
    assert list(four.token_times_ns()) == [320]


@pytest.mark.parametrize(
    ("times", "latencies"),
    [
        # first token, last token: TTFT, E2E and TPOT
        ((None, None), (None, None, None)),
        ((150, None), (50, None, None)),
        ((None, 400), (None, 300, None)),
        ((150, 400), (50, 300, 125)),
    ],
)
def test_latencies_need_the_times_that_they_are_made_of(times, latencies):
    r = ss.Request(0, 100, 9, 3)
    done = Record(r, "finished", 120, *times, output_tokens=3)
    assert (done.ttft_ns, done.e2e_ns, done.tpot_ns) == latencies
    going_on = Record(r, "unfinished", 120, *times, output_tokens=3)
    assert (going_on.ttft_ns, going_on.e2e_ns, going_on.tpot_ns) == (latencies[0], None, None)


def test_time_per_output_token_needs_two_tokens():
    r = ss.Request(0, 100, 9, 3)
    two, one = (Record(r, "finished", 120, 150, 150 + 7 * n, 1 + n) for n in (1, 0))
    assert (two.tpot_ns, one.tpot_ns) == (7, None)
