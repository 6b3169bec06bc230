"""Section by section: latencies, rates, attainment, percentiles."""

import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.metrics import SLO, SLO_PRESETS, Distribution
from tests import strategies

quick = settings(max_examples=100, derandomize=True, deadline=None)


def one_run():
    """Three requests whose token times can be worked out by hand: 1 ms a step."""
    requests = [
        ss.Request(0, 2_000_000, 5, 3),
        ss.Request(1, 2_500_000, 7, 1),
        ss.Request(2, 4_000_000, 9, 2),
    ]
    return ss.simulate(requests, ss.policies.Continuous(), cost=ss.cost.Affine(base_ms=1))


# --- the definitions, by hand


def test_latencies_by_hand():
    # Steps end at 3, 4, 5, 6 ms. r0: tokens at 3, 4, 5; r1: at 4; r2: at 5, 6.
    r0, r1, r2 = one_run().records
    assert [list(r.token_times_ns()) for r in (r0, r1, r2)] == [
        [3_000_000, 4_000_000, 5_000_000],
        [4_000_000],
        [5_000_000, 6_000_000],
    ]
    assert [r.ttft_ns for r in (r0, r1, r2)] == [1_000_000, 1_500_000, 1_000_000]
    assert [r.e2e_ns for r in (r0, r1, r2)] == [3_000_000, 1_500_000, 2_000_000]
    assert [r.tpot_ns for r in (r0, r1, r2)] == [1_000_000, None, 1_000_000]


def test_rates_by_hand():
    result = one_run()
    assert (result.start_ns, result.end_ns) == (2_000_000, 6_000_000)
    assert result.makespan_s == 0.004  # from the first arrival, not from zero
    assert result.output_tokens == 6
    assert result.throughput_tok_s == 6 / 0.004
    assert result.total_tok_s == (6 + 21) / 0.004
    assert result.throughput_req_s == 3 / 0.004
    assert len(result.itl_ms) == 3
    assert len(result.tpot_ms) == 2
    assert result.ttft_ms.mean == pytest.approx(3.5 / 3)


def test_attainment_and_goodput_by_hand():
    result = one_run()
    assert result.attainment(SLO(ttft_ms=1)) == 2 / 3
    assert result.goodput_req_s(SLO(ttft_ms=1)) == 2 / 0.004
    assert result.attainment(SLO(ttft_ms=1.5, tpot_ms=1)) == 1.0  # no TPOT keeps its limit
    assert result.attainment(SLO(ttft_ms=1.5, tpot_ms=0.9)) == 1 / 3
    assert result.attainment(SLO()) == 1.0


def test_attainment_counts_the_rejected_as_failing():
    requests = [ss.Request(0, 0, 5, 2), ss.Request(1, 0, 500, 2), ss.Request(2, 0, 5, 2)]
    result = ss.simulate(
        requests, ss.policies.Continuous(), kv=ss.KVCache(2, 16), never_fits="reject"
    )
    assert [r.status for r in result.records] == ["finished", "rejected", "finished"]
    assert result.attainment(SLO(ttft_ms=10**6)) == 2 / 3
    assert result.attainment(SLO()) == 2 / 3
    assert result.goodput_req_s(SLO()) == pytest.approx(2 / result.makespan_s)
    rejected = result.records[1]
    assert (rejected.ttft_ns, rejected.e2e_ns, rejected.tpot_ns) == (None, None, None)
    assert len(result.ttft_ms) == 2
    assert [SLO().kept_by(r) for r in result.records] == [True, False, True]


def test_a_limit_is_kept_up_to_the_limit_and_by_what_does_not_exist():
    slo = SLO(ttft_ms=2, tpot_ms=1)
    assert slo.kept(2_000_000, 1_000_000)
    assert not slo.kept(2_000_001, 1_000_000)
    assert not slo.kept(2_000_000, 1_000_001)
    assert slo.kept(None, None)


@pytest.mark.parametrize(("late", "within"), [(0, True), (1, True), (2, False)])
def test_of_200_the_p99_rule_looks_at_the_second_worst(late, within):
    # One at a time, 1 ms per token; the late ones come with 3 ms of prompt, alone.
    requests = [ss.Request(i, i * 10**7, 3 if i < late else 2, 1) for i in range(200)]
    result = ss.simulate(requests, ss.policies.Naive(), cost=ss.cost.Affine(prefill_us=1000))
    assert result.p99_within(SLO(ttft_ms=2)) is within
    assert not result.p99_within(SLO(ttft_ms=1.9))
    assert result.p99_within(SLO(ttft_ms=3))


def test_attainment_and_the_p99_rule_are_two_notions():
    requests = [ss.Request(i, 0, 5 if i else 50_000, 1) for i in range(10)]
    cost = ss.cost.Affine(prefill_us=1)
    result = ss.simulate(requests[::-1], ss.policies.Naive(), cost=cost)
    slo = SLO(ttft_ms=1)
    assert result.attainment(slo) == 0.9
    assert not result.p99_within(slo)
    assert result.p99_within(SLO(ttft_ms=51))
    assert result.p99_within(SLO(tpot_ms=1))  # nobody has a TPOT


@given(run=strategies.runs(), ttft=st.integers(1, 10**6), tpot=st.integers(1, 1000))
@quick
def test_definitions_hold_in_every_run(run, ttft, tpot):
    requests, policy, options = run
    result = ss.simulate(requests, policy, **options)
    slo = SLO(ttft, tpot)
    kept = 0
    for r in result.records:
        times = list(r.token_times_ns())
        assert len(times) == r.request.output_len
        assert times == sorted(times)
        assert r.ttft_ns == times[0] - r.request.arrival_ns
        assert r.e2e_ns == times[-1] - r.request.arrival_ns
        if len(times) == 1:
            assert r.tpot_ns is None
        else:
            assert r.tpot_ns == (r.e2e_ns - r.ttft_ns) / (r.request.output_len - 1)
        ok = r.ttft_ns <= ttft * 10**6 and (r.tpot_ns or 0) <= tpot * 10**6
        assert slo.kept_by(r) is ok
        kept += ok
    assert result.makespan_ns == max(r.last_token_ns for r in result.records) - result.start_ns
    assert result.start_ns == requests[0].arrival_ns
    assert result.attainment(slo) == kept / len(requests)
    assert 0 <= result.attainment(slo) <= 1
    gaps = [b - a for r in result.records for a, b in pairwise(r.token_times_ns())]
    assert len(result.itl_ms) == len(gaps)
    if gaps:
        assert result.itl_ms.max == max(gaps) / 10**6
        assert result.itl_ms.mean == pytest.approx(sum(gaps) / len(gaps) / 10**6)
    if result.makespan_ns:
        assert result.goodput_req_s(slo) == pytest.approx(kept / result.makespan_s)
        assert result.goodput_req_s(slo) <= result.throughput_req_s
        assert result.throughput_tok_s <= result.total_tok_s
    else:
        assert result.goodput_req_s(slo) is None


# --- percentiles

values = st.lists(st.integers(0, 10**12), min_size=1, max_size=40)
percents = st.floats(0, 100) | st.sampled_from([0, 50, 90, 95, 97.5, 99, 99.9, 100])


@given(values=values, p=percents)
@quick
def test_the_default_percentile_is_numpy_s(values, p):
    ours = Distribution.of(values).percentile(p)
    assert ours == pytest.approx(float(np.percentile(values, p)), rel=1e-9, abs=1e-9)


@given(values=st.lists(st.integers(0, 99), min_size=1, max_size=300))
@quick
def test_the_other_rules_are_their_formulas(values):
    x, n, seen = sorted(values), len(values), Distribution.of(values)
    assert seen.percentile(99, "mlperf") == x[int(n * 0.99)]
    assert seen.percentile(90, "mlperf") == x[int(n * 0.90)]
    assert seen.percentile(95, "mlperf") == x[min(n - 1, int(0.95 * n))]
    assert seen.percentile(100, "mlperf") == x[-1]
    assert seen.percentile(99, "toy") == x[int(0.99 * n) - 1]
    assert (seen.min, seen.max, len(seen)) == (x[0], x[-1], n)
    assert seen.mean == pytest.approx(sum(x) / n)


@given(values=values, p=percents, q=percents, rule=st.sampled_from(["linear", "mlperf"]))
@quick
def test_percentiles_rise_with_p_and_stay_within_the_values(values, p, q, rule):
    seen = Distribution.of(values)
    low, high = sorted((p, q))
    assert seen.min <= seen.percentile(low, rule) <= seen.percentile(high, rule) <= seen.max


@given(values=values)
@quick
def test_repeated_values_may_be_counted_or_listed(values):
    listed = Distribution.of(values + values, 1000)
    counted = Distribution([(v, 2) for v in values], 1000)
    assert listed.row() == counted.row()
    assert len(listed) == len(counted) == 2 * len(values)


def test_a_scale_is_applied_to_every_figure():
    seen = Distribution.of([1_000_000, 3_000_000], 1_000_000)
    assert seen.row() == {"mean": 2, "p50": 2, "p90": 2.8, "p95": 2.9, "p99": 2.98, "max": 3}


@pytest.mark.parametrize("values", [[2**63, -(2**63) - 1], [0.25, 3], [Fraction(1, 3), 2]])
def test_numbers_that_no_column_holds_are_numbers(values):
    seen = Distribution.of(values)
    assert (seen.min, seen.max) == pytest.approx((float(min(values)), float(max(values))))
    assert seen.mean == pytest.approx(float(sum(values) / 2))


def test_a_sum_is_exact_whatever_the_order():
    assert Distribution.of([1e16, 1.0, -1e16]).mean == 1 / 3
    assert Distribution([(1e16, 1), (1.0, 1), (-1e16, 1)]).mean == 1 / 3


HUGE = 10**400  # no float holds it


@pytest.mark.parametrize("values", [[math.nan], [1, math.nan], [HUGE], [-HUGE], [HUGE, -HUGE]])
def test_what_no_figure_can_show_is_refused(values):
    with pytest.raises(ss.InputError, match=r"^values must hold numbers only"):
        Distribution.of(values)
    with pytest.raises(ss.InputError, match=r"^counts must hold numbers only"):
        Distribution([(value, 1) for value in values])


@pytest.mark.parametrize("counts", [[(1, -1)], [(1, 1.0)], [(-HUGE, 0)], [(1, HUGE)]])
def test_odd_counts_are_refused(counts):
    with pytest.raises(ss.InputError, match=r"^counts must hold numbers only"):
        Distribution(counts)


def test_a_value_need_not_have_been_seen():
    assert len(Distribution([(1, 0), (2, 3)])) == 3


def test_without_values_there_are_no_figures():
    seen = Distribution.of([])
    assert set(seen.row().values()) == {None}
    assert (seen.min, seen.mean, len(seen), seen.percentile(50)) == (None, None, 0, None)


@pytest.mark.parametrize("p", [-1, 100.1, math.nan, math.inf])
def test_a_percentile_out_of_range_is_refused(p):
    with pytest.raises(ss.InputError, match="between 0 and 100"):
        Distribution.of([1]).percentile(p)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ss.InputError, match=r"unknown percentile rule 'median'.*linear"):
        Distribution.of([1]).percentile(50, "median")


# --- objectives


def test_the_presets_are_mlperf_s():
    assert {name: (slo.ttft_ms, slo.tpot_ms) for name, slo in SLO_PRESETS.items()} == {
        "llama-2-70b": (2000, 200),
        "llama-2-70b-interactive": (450, 40),
        "llama-3.1-8b": (2000, 100),
        "llama-3.1-8b-interactive": (500, 30),
        "llama-3.1-405b": (6000, 175),
        "llama-3.1-405b-interactive": (4500, 80),
    }


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "200", True])
@pytest.mark.parametrize("name", ["ttft_ms", "tpot_ms"])
def test_an_impossible_objective_is_refused(name, bad):
    with pytest.raises(ss.InputError, match=f"{name} must be a positive number"):
        SLO(**{name: bad})


def test_an_objective_may_be_as_loose_as_a_number_can_be():
    assert SLO(ttft_ms=10**15).ttft_ms == 10**15
    with pytest.raises(ss.InputError, match="ttft_ms must be a positive number"):
        SLO(ttft_ms=10**15 + 1)


# --- the summary

KEYS = {
    *("requests", "finished", "rejected", "makespan_s", "output_tokens", "throughput_tok_s"),
    *("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "goodput_req_s", "attainment"),
    *("preemptions", "steps", "engine_iterations", "kv"),
}


def strict_json(data):
    """Write and read JSON; NaN and infinities are none."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(json.dumps(data), parse_constant=refuse)


@given(run=strategies.runs(), slo=st.none() | st.builds(SLO, st.integers(1, 9), st.integers(1, 9)))
@quick
def test_the_summary_is_one_row_of_json(run, slo):
    requests, policy, options = run
    result = ss.simulate(requests, policy, **options)
    row = strict_json(result.summary(slo))
    assert row.keys() >= KEYS
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        assert list(row[name]) == ["mean", "p50", "p90", "p95", "p99", "max"]
    assert row["requests"] == row["finished"] == len(requests)
    assert row["output_tokens"] == sum(r.output_len for r in requests)
    assert (row["attainment"] is None) is (slo is None)
    assert row["kv"]["peak_blocks"] == result.peak_blocks


def test_the_summary_of_a_run_in_which_nobody_was_served():
    requests = [ss.Request(0, 5, 500, 2)]
    result = ss.simulate(requests, ss.policies.Naive(), kv=ss.KVCache(1), never_fits="reject")
    row = strict_json(result.summary(SLO(1, 1)))
    assert (row["requests"], row["finished"], row["rejected"]) == (1, 0, 1)
    assert (row["makespan_s"], row["throughput_tok_s"], row["goodput_req_s"]) == (0, None, None)
    assert (row["attainment"], row["ttft_ms"]["p99"]) == (0, None)


def test_the_summary_judges_by_the_objective_it_is_given():
    result = one_run()
    for slo in (SLO(1, 1), SLO(1000, 1000), SLO(2, 1000)):
        row = result.summary(slo)
        assert row["goodput_req_s"] == result.goodput_req_s(slo)
        assert row["attainment"] == result.attainment(slo)
        assert row["p99_within_slo"] is result.p99_within(slo)
    row = result.summary()
    assert [row[n] for n in ("goodput_req_s", "attainment", "p99_within_slo")] == [None] * 3
    assert (row["policy"], row["kv"]["blocks"], row["kv"]["block_size"]) == (
        result.policy,
        result.kv.blocks,
        result.kv.block_size,
    )


@pytest.mark.parametrize(("price", "per_second"), [(0, None), (1, 10**9)])
def test_rates_and_averages_of_a_run_that_takes_next_to_no_time(price, per_second):
    class Price:
        def price_ns(self, work):
            return price

    kv = ss.KVCache(1)
    result = ss.simulate([ss.Request(0, 0, 5, 1)], ss.policies.Naive(), cost=Price(), kv=kv)
    assert (result.makespan_ns, result.throughput_tok_s) == (price, pytest.approx(per_second))
    assert (result.mean_running, result.mean_blocks) == (price, price)


def test_averages_over_time_are_the_integrals_over_the_span():
    result = one_run()
    assert result.running_ns == 1_000_000 * (1 + 2 + 2 + 1)
    assert result.mean_running == 6 / 4
    assert result.system_ns == 1_000_000 * (3 + 1.5 + 2)
    assert result.mean_blocks == pytest.approx(6 / 4)


def test_a_run_without_a_token_has_no_length():
    run = ss.simulate([ss.Request(0, 10**6, 20, 1)], ss.policies.Naive(), max_steps=0)
    assert (run.makespan_ns, run.makespan_s, run.throughput_tok_s) == (0, 0.0, None)
