"""The published experiments: our figures stand where the chapters say they stand."""

import pytest

import servesim as ss
from servesim import studies

MEANS = {"prompt_len": 161.31, "output_len": 337.99}


@pytest.fixture(scope="module")
def rows():
    return studies.vllm_paper_kv()


@pytest.mark.parametrize("side", MEANS)
def test_lengths_have_the_paper_s_means(side):
    many = studies.sharegpt_like(40_000, seed=1)
    assert sum(getattr(r, side) for r in many) / len(many) == pytest.approx(MEANS[side], rel=0.02)
    used = studies.sharegpt_like()
    assert sum(getattr(r, side) for r in used) / len(used) == pytest.approx(MEANS[side], rel=0.01)
    assert max(r.prompt_len + r.output_len for r in many) <= studies.MAX_LEN


def test_arrivals_have_the_paper_s_rate():
    used = studies.sharegpt_like()
    assert len(used) / used[-1].arrival_s == pytest.approx(2.0, rel=0.01)


def test_those_in_the_batch_are_as_long_as_in_the_paper_s_row_orca_max():
    many = studies.sharegpt_like(40_000, seed=1)
    weighted = sum((r.prompt_len + r.output_len - 1) * r.output_len for r in many)
    mean = weighted / sum(r.output_len for r in many)
    assert mean == pytest.approx((20.4 + 13.3) / 100 * studies.KV_SLOTS / 7, rel=0.02)


def test_orca_max_batches_exactly_seven(rows):
    assert rows[0].batched == 7
    assert studies.KV_SLOTS // studies.MAX_LEN == 7
    assert sum(rows[0].parts[:3]) == pytest.approx(100 * 7 * 2048 / 15_700, abs=0.05)


def test_parts_add_up(rows):
    for row in rows:
        assert sum(row.split) == pytest.approx(100)
        assert sum(p or 0 for p in row.parts) == pytest.approx(100)


@pytest.mark.parametrize(("index", "within"), [(0, 0.5), (1, 5), (2, 2.5)])
def test_orca_s_shares_are_near_the_paper_s(rows, index, within):
    row = rows[index]
    for ours, paper in zip(row.parts, row.paper_parts, strict=True):
        assert (ours is None) == (paper is None)
        assert paper is None or abs(ours - paper) < within
    assert row.batched == pytest.approx(row.paper_batched, rel=0.08)


def test_vllm_fills_the_cache_if_steps_are_as_long_as_the_paper_s(rows):
    ours, slow = rows[3:]
    assert ours.parts[0] < 60
    assert slow.parts[0] == pytest.approx(96.3, abs=1.5)
    assert slow.batched == pytest.approx(30.42, rel=0.12)
    for row in (ours, slow):  # of what is held, hardly anything is wasted
        assert row.split.tokens / (row.split.tokens + row.split.rounding) > 0.97


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_another_sample_gives_the_same_picture(seed):
    rows = studies.vllm_paper_kv(300, seed)
    batched = [row.batched for row in rows]
    assert batched == sorted(batched[:4]) + batched[4:]
    assert batched[0] == 7
    tokens = [row.parts[0] for row in rows]
    assert tokens == sorted(tokens)


def test_steps_that_are_twice_as_long_cost_twice_as_much():
    work = ss.cost.Work(100, 7, 2000, 10_000, 100)
    twice = studies.slower(ss.cost.OPT_13B_A100, 2)
    assert twice.price_ns(work) == 2 * ss.cost.OPT_13B_A100.price_ns(work)


def test_lines_show_paper_ours_and_difference(rows):
    lines = rows[2].lines()
    assert [line[""] for line in lines] == ["paper", "ours", "difference"]
    assert lines[0][studies.COLUMNS[0]] == "38.2"
    assert lines[0][studies.COLUMNS[2]] == lines[2][studies.COLUMNS[2]] == "-"
