"""Analysis plots: what is drawn are the numbers that were given, named and with a unit."""

import sys

import pytest

import servesim as ss
from servesim import plots
from servesim.metrics import Distribution

pyplot = pytest.importorskip("matplotlib.pyplot")

REQUESTS = [ss.Request(i, i * 10**7, 40, 4) for i in range(4)]


@pytest.fixture(autouse=True)
def no_window():
    before = pyplot.get_backend()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)


@pytest.fixture(scope="module")
def run():
    policy = ss.policies.VLLM(64, enable_chunked_prefill=True)
    return ss.simulate(REQUESTS, policy, kv=ss.KVCache(9), record_steps=True)


def legend(ax):
    """Return what stands in the legend, whether it belongs to the axes or lies below them."""
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_timeline_has_a_row_for_each_request_and_a_bar_for_each_stretch(run):
    ax = plots.timeline(run)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["r0", "r1", "r2", "r3"]
    kinds = list(dict.fromkeys(s.kind for s in ss.trace.segments(run)))
    assert legend(ax) == [kind for kind in plots.KIND_LOOKS if kind in kinds]
    bars = [p for p in ax.patches if p.get_width()]
    assert len(bars) == len(ss.trace.segments(run))
    end = max(p.get_x() + p.get_width() for p in bars)
    assert end == pytest.approx(run.end_ns / 1e9)
    assert ax.get_xlabel() == "time (s)"


def test_a_life_has_its_tokens_and_latencies(run):
    ax = plots.life(run, 2)
    (dots,) = [line for line in ax.lines if line.get_label() == "token"]
    record = next(r for r in run.records if r.request.id == 2)
    assert list(dots.get_xdata()) == [t / 1e6 for t in record.token_times_ns()]
    said = [text.get_text() for text in ax.texts]
    assert [s for s in said if s] == ["queueing time", "TTFT", "first to last token", "E2E", "ITL"]


@pytest.mark.parametrize("request_id", [99, None])
def test_a_life_of_nobody_is_told(run, request_id):
    with pytest.raises(ss.InputError, match="request_id"):
        plots.life(run, request_id)


@pytest.mark.parametrize("draw", [plots.timeline, lambda what: plots.life(what, 0)])
@pytest.mark.parametrize("bad", [None, 3, "run", REQUESTS])
def test_what_is_no_run_is_told(draw, bad):
    with pytest.raises(ss.InputError, match=r"result must be of class servesim\.metrics\.Result"):
        draw(bad)


def test_a_cdf_goes_from_the_least_to_the_largest_value():
    ax = plots.cdf({"a": Distribution.of([1, 2, 9]), "b": Distribution.of([5])}, "x (ms)", log=True)
    a, b = ax.lines
    assert (a.get_xdata()[0], a.get_xdata()[-1]) == (1, 9)
    assert (a.get_ydata()[0], a.get_ydata()[-1]) == (0, 100)
    assert set(b.get_xdata()) == {5}
    assert legend(ax) == ["a", "b"]
    assert (ax.get_xlabel(), ax.get_xscale()) == ("x (ms)", "log")


def test_lines_have_their_numbers_and_a_legend_where_there_are_several():
    one = plots.lines([1, 2], {"a": [3, 4]}, "x", "y")
    assert one.get_legend() is None
    two = plots.lines([1, 2], {"a": [3, 4], "b": [5, 6]}, "x", "y")
    assert [list(line.get_ydata()) for line in two.lines] == [[3, 4], [5, 6]]
    assert len({line.get_marker() for line in two.lines}) == 2
    assert legend(two) == ["a", "b"]


def test_theory_lies_over_its_runs_in_the_same_color():
    runs, formulas = {"a": [1, 2, 4], "b": [2, 3, 5]}, {"a": [1, 2, 3]}
    errors = {"a": [0.1, 0.1, 0.1]}
    ax = plots.theory([1, 2, 4], runs, formulas, "x", "y", log="xy", errors=errors)
    dotted = [line for line in ax.lines if line.get_linestyle() == ":"]
    plain = [line for line in ax.lines if line.get_linestyle() == "-"]
    assert [list(line.get_ydata()) for line in dotted] == list(runs.values())
    assert [list(line.get_ydata()) for line in plain] == [formulas["a"]]
    assert plain[0].get_color() == dotted[0].get_color() != dotted[1].get_color()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "4"]
    assert len(ax.containers) == 1


def test_arrivals_are_a_stroke_each():
    ax = plots.arrivals({"few": REQUESTS[:2], "all": REQUESTS})
    strokes = [list(c.get_positions()) for c in ax.collections]
    assert strokes == [[0.0, 0.01], [0.0, 0.01, 0.02, 0.03]]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["few", "all"]


def test_shares_stand_end_to_end():
    rows = {"ours": {"used": 60.0, "free": 40.0}, "theirs": {"used": 20.0, "free": 80.0}}
    ax = plots.shares(rows, "share (%)")
    spans = sorted((p.get_y(), p.get_x(), p.get_width()) for p in ax.patches)
    assert [(x, w) for _, x, w in spans] == [(0, 60), (60, 40), (0, 20), (20, 80)]
    assert legend(ax) == ["used", "free"]
    assert ax.get_xlim() == (0, 100)


def test_pairs_tell_by_how_much_they_differ():
    ax = plots.against({"a": 110.0, "b": 45.0}, {"a": 100.0, "b": 50.0}, "ms")
    assert [text.get_text() for text in ax.texts] == ["+10 %", "−10 %"]
    published, ours = ax.lines
    assert (list(published.get_xdata()), list(ours.get_xdata())) == ([100, 50], [110, 45])
    assert legend(ax) == ["published", "ours"]


def test_a_plane_names_every_point():
    curves = {f"c{k}": [("1", 1.0, 2.0 + k), ("2", 4.0, 8.0 + k)] for k in range(8)}
    ax = plots.plane(curves, "x", "y")
    assert [text.get_text() for text in ax.texts] == ["1", "2"] * 8
    assert legend(ax) == list(curves)
    looks = {(line.get_color(), line.get_marker(), line.get_markerfacecolor()) for line in ax.lines}
    assert len(looks) == 8


def test_without_matplotlib_it_is_told_and_the_chapter_goes_on(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cycler", None)
    assert plots.timeline(run) is None
    assert capsys.readouterr().out.startswith("this plot needs matplotlib, which is not installed")
