"""Corners that no other test reaches: each a way in which things can be, one small case."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import servesim as ss
from servesim import book, studies, svg, sweep
from servesim.drill import drill
from servesim.explore import explore, figure_id, sentence
from servesim.grade import pages
from servesim.metrics import Distribution
from servesim.stepper import stepper
from servesim.svg import fmt

FEW = [ss.Request(i, 0, 10, 3) for i in range(3)]


# --- the engine and its policies


class TooShort(ss.policies.Continuous):
    """Reserves room for one token of each output, and finds out."""

    def predict(self, prompt_len, output_len):
        return 1


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("gap_ns", [0, 10**7, 10**9])
def test_who_outgrows_its_reservation_buys_more(skip, gap_ns):
    requests = [ss.Request(i, i * gap_ns, 16, 5 * (i + 1)) for i in range(3)]
    run = ss.simulate(requests, TooShort(), kv=ss.KVCache(9), skip=skip)
    plain = ss.simulate(requests, ss.policies.Continuous())
    assert run.records == plain.records
    assert run.peak_blocks == (6 if gap_ns < 10**9 else 2)
    assert run.block_ns > plain.running_ns  # each holds a second block from its first token on


@pytest.mark.parametrize("skip", [True, False])
def test_who_outgrows_its_reservation_in_a_full_cache_is_told(skip):
    requests = [ss.Request(i, 0, 16, 5) for i in range(3)]
    with pytest.raises(ss.PlanError, match="step 1, request 1, rule 'blocks'"):
        ss.simulate(requests, TooShort(), kv=ss.KVCache(4), skip=skip)


def test_a_group_whose_head_can_never_fit_says_so():
    run = ss.simulate(
        [ss.Request(0, 0, 100, 1)],
        ss.policies.Static(2),
        kv=ss.KVCache(2),
        never_fits="try",
        on_stall="record",
        record_steps=True,
    )
    assert run.outcome == "stalled"
    assert run.step_records[0].reasons == {0: "r0 waits: its blocks do not fit the KV cache"}


class ThrowsOut(ss.policies.Continuous):
    """Throws the second out in the third step, and takes it in again later."""

    def plan(self, view):
        plan = super().plan(view)
        if view.step == 2 and len(view.running) > 1:
            plan = ss.Plan(decode_all=True, preempted=[view.running[1].id])
        return plan


def test_a_chunk_that_is_given_up_can_be_had_again():
    run = ss.simulate(FEW, ThrowsOut(), kv=ss.KVCache(4, contiguous=True), record_steps=True)
    assert run.preemptions == 1
    assert run.count("finished") == 3
    held = [sum(s.blocks.values()) + s.free_blocks[1] for s in run.step_records]
    assert held == [4] * len(held)


def test_a_batch_shows_itself_as_a_list():
    shown = []

    class Looks(ss.policies.Naive):
        def plan(self, view):
            shown.append((repr(view.running), len(view.running)))
            return super().plan(view)

    ss.simulate(FEW[:1], Looks())
    assert shown[0] == ("[]", 0)
    assert shown[1][0].startswith("[Progress(id=0, ")


# --- figures of a run


def test_a_comparison_shows_itself_as_its_table():
    comparison = ss.compare(FEW, [ss.policies.Naive(), ss.policies.Static(2)])
    assert repr(comparison) == str(comparison)
    assert [line.split("  ")[0] for line in repr(comparison).splitlines()] == [
        *("policy", "Naive()", "Static(batch_size=2)")
    ]


def test_numbers_that_are_not_whole_are_added_up_exactly():
    counted = Distribution([(0.1, 10), (0.3, 3)])
    listed = Distribution.of([0.1] * 10 + [0.3] * 3)
    assert counted.mean == listed.mean == pytest.approx(1.9 / 13, rel=1e-15)
    assert counted.row() == listed.row()


# --- sweeps, where the points run in this process


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_point_that_fails_is_a_row_with_its_reason(threads):
    (row,) = sweep.sweep("naive", "poisson:n=1,prompt=99", kv_blocks=1, executor=threads)
    assert row["error"].startswith("request 0 can never run: it needs ")
    assert row["steps"] is None


def test_a_worker_whose_files_differ_ends_the_sweep(threads, monkeypatch):
    made = iter(range(9))
    monkeypatch.setattr(sweep, "fingerprint", lambda point: next(made))
    with pytest.raises(ss.InputError, match="has another version of servesim"):
        sweep.sweep("naive", "toy:n=1", executor=threads)


def test_what_a_point_reads_must_be_there(tmp_path):
    point = sweep.Point("naive", str(tmp_path / "w.csv"), "toy", None, None, 16, "error")
    with pytest.raises(ss.InputError, match=r"w\.csv: No such file"):
        sweep.fingerprint(point)


# --- studies, on few requests: their figures mean nothing then, but they are computed


def test_gains_in_rate_are_quotients_of_the_last_rates_that_were_carried():
    curves = {
        "Orca (Oracle)": {0.5: 0.01, 1.0: 0.05, 1.5: 0.2},
        "Orca (Max)": {0.25: 0.02, 0.5: 0.04, 0.75: 0.3},
        "vLLM": {1.0: 0.01, 2.0: 0.03, 3.0: 0.4},
    }
    checks = studies.rate_checks(curves)
    assert [(c.ours, c.met) for c in checks] == [(2.0, True), (4.0, True)]


def test_sarathi_s_gain_is_one_rate_over_the_other():
    checks = studies.sarathi_checks(n=64)
    assert [c.what for c in checks] == [
        *("chunked over prefill first, overlap", "chunked over prefill first, in turn")
    ]
    first, chunked = studies.sarathi_capacity("strict", studies.in_turn(), n=64)
    assert checks[1].ours == chunked / first > 1


@pytest.mark.parametrize("bursty", [True, False])
def test_a_generator_is_held_against_its_trace(bursty):
    data = Path(__file__).parents[1] / "chapters" / "data" / "traces.json"
    facts = json.loads(data.read_text(encoding="utf-8"))["azure_conv"]
    checks = studies.latency_checks("azure_conv", facts, bursty, n=40)
    ours = studies.latencies(
        studies.generated("azure_conv", facts, bursty, n=40), ss.policies.VLLM(), "azure_conv"
    )
    kind = "gamma" if bursty else "Poisson"
    told = {check.what: check.ours for check in checks}
    names = ("mean E2E (ms)", "P99 TTFT (ms)", "P99 ITL (ms)")
    assert told == {f"{name} of azure_conv ({kind})": ours[name] for name in names}


# --- what is shown


def test_a_live_figure_says_what_it_is():
    assert repr(explore("servesim.figs:naive_load")) == "explore('servesim.figs:naive_load')"
    assert repr(drill("servesim.exercises:waits")) == "drill('servesim.exercises:waits')"
    assert "text/html" in drill("servesim.exercises:waits")._repr_mimebundle_()

    def my_figure(x=1):
        return svg.figure("mine", svg.Timeline(), title="Mine", summary="One.")

    assert repr(explore(my_figure, x=(0, 2, 1, 1))) == "explore('my_figure')"
    assert figure_id(my_figure) == "my_figure"


def test_a_long_reason_is_cut():
    said = sentence(ValueError("why " * 200))
    assert said.startswith("This could not be drawn, so the last picture stays: ValueError: why")
    assert said.endswith("…")
    assert len(said) < 400


def test_a_stepper_with_a_function_among_its_options_moves_in_a_kernel_only():
    moving = stepper(FEW, "naive")
    still = stepper(FEW, "naive", on_done=lambda record: None)
    assert json.loads(json.dumps(moving.target)) == "servesim.figs:stepper"
    assert callable(still.target)
    assert still.figure(step=1).svg == moving.figure(step=1).svg.replace("servesim-figs", "show")


@pytest.mark.parametrize(
    ("axis", "values", "ends"),
    [
        (svg.Axis("x", zero=False), [5.0, 5.0], (2.5, 7.5)),
        (svg.Axis("x", zero=False), [0.0], (-0.5, 0.5)),
        (svg.Axis("x", scale="log"), [8.0], (4.0, 16.0)),
        (svg.Axis("x", scale="log2"), [3.0, 20.0], (2.0, 32.0)),
        (svg.Axis("x", scale="log2"), [4.0, 16.0], (4.0, 16.0)),
        (svg.Axis("x", scale="log"), [-1.0, 0.0], (1.0, 10.0)),
        (svg.Axis("x"), [], (0.0, 1.0)),
    ],
    ids=repr,
)
def test_the_ends_of_an_axis(axis, values, ends):
    assert axis.span(values, nice=axis.scale == "log2", zero=axis.zero) == ends


def test_wide_signs_take_more_room():
    assert svg.text_width("漢字", 16) == 2 * 16


# --- what chapters print


def test_a_figure_in_the_text_keeps_its_digits(monkeypatch, capsys):
    assert repr(book.Told("1.00")) == "'1.00'"  # quoted, or it would be printed as 1.0
    monkeypatch.setitem(sys.modules, "myst_nb", None)
    book.glue("mean", 2 / 3, ".2f")
    assert capsys.readouterr().out == "mean: 0.67\n"


def test_records_are_a_table_with_the_forms_asked_for():
    table = book.table([{"name": "a", "ms": 1.25}, {"name": "b<", "ms": 10.0}], {"ms": ".1f"})
    assert table.rows == [["name", "ms"], ["a", "1.2"], ["b<", "10.0"]]
    assert repr(table).splitlines() == ["name    ms", "a      1.2", "b<    10.0"]
    assert "<td>b&lt;</td>" in table._repr_html_()


def test_code_is_shown_as_it_stands():
    shown = book.source(ss.policies.Naive.plan, "if view.running")
    lines = repr(shown).splitlines()
    assert lines[0] == "# servesim.policies.naive.Naive.plan"
    assert lines[1].startswith("if view.running:")
    assert shown._repr_markdown_() == f"```python\n{shown}\n```"
    with pytest.raises(ss.InputError, match=r"no line of .* holds 'nosuch'"):
        book.source(ss.policies.Naive.plan, "nosuch")


# --- pages of assignments


def test_the_rules_of_an_assignment_add_up_to_its_points():
    name, rows = "warmup", pages.rules("warmup").rows
    assert rows[0] == ["rule", "points", "what must hold"]
    points = sum(float(row[1]) for row in rows[1:])
    facts = pages.facts(name).rows
    assert facts[1][facts[0].index("points")] == fmt(points) == "100"
    told = pages.tell(name)
    assert told.name == name
