"""The ledger: one row of whole numbers per request, and the gaps that they share."""

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


def test_a_single_tick_has_no_spacing():
    assert list(logged([(5, 3, 1, 1)]).runs()) == [(5, 0, 1, 1)]
    assert list(logged([(5, 3, 2, 1)]).runs()) == [(5, 3, 2, 1)]


def test_equal_spacing_is_one_run_however_long():
    log = logged([(5, 0, VAST, 3), (5, 0, VAST, 3), (7, 0, VAST, 0), ([7], 2), (9, 2, VAST, 2)])
    expected = [(5, 0, 2 * VAST, 3), (7, 0, VAST, 0), (7, 2, VAST + 1, 2)]
    assert list(log.runs()) == expected
    gaps = Runs()
    log.copy_to(gaps, VAST, 4 * VAST)
    assert gaps.runs == [[5, 0, VAST], [7, 0, VAST + 1], [9, 2, VAST - 1]]


# --- rows


R = [ss.Request(7 * i, 100 * i, 20 + i, 5, priority=i, tenant="ab"[:i]) for i in range(5)]

# Two saw the ticks 4 and 5, one the ticks 1 and 2, nobody the others.
TICKS = [(10, 0, 2, 1), (10, 0, 1, 0), (30, 5, 2, 2), (40, 5, 2, 0)]

# Stints, and the gaps that they come to.
STINTS = [
    ([(NEVER, 0, 2), (50, 2, 2), (60, 3, 5)], [10, 10, 50, 60, 30, 35]),
    ((), []),
    ([(50, 2, 2), (NEVER, 3, 5)], [50, 30, 35]),
    ([(20, 7, 7)], [20]),
    ((), []),
]


def ledger_of_five():
    """Build one of each kind: done, turned away, on its way, and done with two or one token."""
    ledger = Ledger(logged(TICKS))
    rows = [ledger.open() for _ in R]
    ledger.write(rows[0], R[0], "finished", 1, 2, 197, 7, 2, STINTS[0][0])
    ledger.write(rows[1], R[1], "rejected")
    ledger.write(rows[2], R[2], "unfinished", 210, 220, 335, 4, 1, STINTS[2][0])
    ledger.write(rows[3], R[3], "finished", 310, 320, 340, 2, 0, STINTS[3][0])
    ledger.write(rows[4], R[4], "finished", 410, 420, 420, 1)
    return ledger


def test_a_row_reads_as_the_record_that_was_written():
    ledger = ledger_of_five()
    assert len(ledger) == 5
    assert [list(record.gaps) for record in ledger] == [gaps for _, gaps in STINTS]
    done, refused, going_on, two, one = ledger
    assert done == Record(R[0], "finished", 1, 2, 197, 7, 2, done.gaps)
    assert refused == Record(R[1], "rejected", None, None, None, 0, 0)
    assert going_on == Record(R[2], "unfinished", 210, 220, 335, 4, 1, going_on.gaps)
    assert two == Record(R[3], "finished", 310, 320, 340, 2, 0, two.gaps)
    assert one == Record(R[4], "finished", 410, 420, 420, 1)
    assert [ledger.request(row) for row in range(5)] == R


def test_a_time_of_zero_is_a_time():
    ledger = Ledger(logged([(0, 0, 1, 1)]))
    ledger.write(ledger.open(), R[0], "finished", 0, 0, 0, 4, 0, [(0, 0, 1), (0, 1, 1)])
    (record,) = ledger
    assert (record.first_scheduled_ns, record.ttft_ns, record.e2e_ns, record.tpot_ns) == (0,) * 4
    assert list(record.token_times_ns()) == [0] * 4
    assert list(ledger.ttft_ns()) == list(ledger.e2e_ns()) == list(ledger.tpot_ns()) == [0]
    assert sum(count for _, count in ledger.gap_counts()) == 3


def test_a_ledger_reads_like_a_list():
    ledger = ledger_of_five()
    records = list(ledger)
    assert ledger == records
    assert ledger == ledger_of_five()
    assert ledger != records[1:]
    assert ledger != 4
    for index in (0, 4, -1, -5, slice(1, 3), slice(None, None, -2), slice(9, 12)):
        assert ledger[index] == records[index]
    for index in (5, -6):
        with pytest.raises(IndexError):
            ledger[index]
    with pytest.raises(TypeError):
        hash(ledger)


def test_a_column_has_a_number_for_each_row():
    ledger = ledger_of_five()
    assert [STATUSES[code] for code in ledger.column("status")] == [r.status for r in ledger]
    for name in ("id", "arrival_ns", "prompt_len", "output_len", "priority"):
        assert list(ledger.column(name)) == [getattr(r, name) for r in R]
    for name in ("first_scheduled_ns", "first_token_ns", "last_token_ns"):
        times = [NEVER if (t := getattr(r, name)) is None else t for r in ledger]
        assert list(ledger.column(name)) == times
    assert list(ledger.column("output_tokens")) == [7, 0, 4, 2, 1]
    assert list(ledger.column("preemptions")) == [2, 0, 1, 0, 0]
    firsts = [stints[0] if stints else (NEVER, 0, 0) for stints, _ in STINTS]
    assert list(zip(*map(ledger.column, ("gap", "after", "upto")), strict=True)) == firsts
    assert [len(ledger.column(name)) for name in COLUMNS] == [5] * len(COLUMNS)
    assert [ledger.rows(status) for status in STATUSES] == [[2], [0, 3, 4], [1]]


def test_latencies_of_all_are_those_of_each():
    ledger = ledger_of_five()
    assert list(ledger.ttft_ns()) == [r.ttft_ns for r in ledger] == [2, None, 20, 20, 20]
    assert list(ledger.e2e_ns()) == [r.e2e_ns for r in ledger] == [197, None, None, 40, 20]
    assert list(ledger.tpot_ns()) == [r.tpot_ns for r in ledger] == [32.5, None, None, 20, None]


def test_gaps_are_counted_once_per_request_that_saw_them():
    counts = sorted(ledger_of_five().gap_counts())
    assert counts == sorted(Counter(gap for _, gaps in STINTS for gap in gaps).items())
    ledger = Ledger(logged([(5, 0, VAST, 3), (8, 1, VAST, 0), (6, 2, 3, 2)]))
    assert list(ledger.gap_counts()) == [(5, 3 * VAST), (6, 2), (8, 2), (10, 2)]


def test_tokens_come_a_gap_apart():
    times = [list(record.token_times_ns()) for record in ledger_of_five()]
    assert times == [
        [2, 12, 22, 72, 132, 162, 197],
        [],
        [220, 270, 300, 335],
        [320, 340],
        [420],
    ]


def test_of_a_record_only_the_request_must_be_given():
    record = Record(R[0])
    assert (record.status, record.output_tokens, record.preemptions) == ("unfinished", 0, 0)
    assert (record.ttft_ns, record.e2e_ns, record.tpot_ns) == (None, None, None)
    assert list(record.token_times_ns()) == list(record.gaps) == []


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
