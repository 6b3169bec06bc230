"""The drawing primitives: exact, escaped, reproducible, and readable by everyone."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servesim import svg
from servesim.errors import InputError

NASTY = """<script>alert("1")</script> & 'quoted' ]]> \x07\udcff"""
NS = "{http://www.w3.org/2000/svg}"
LIVE_CSS = Path(__file__).parents[1] / "_static" / "live" / "live.css"


def lines(name: str = "run") -> svg.Chart:
    chart = svg.Chart(f"{name} rate (requests/s)", svg.Axis(f"{name} ITL (ms)", "log"), title=name)
    chart.line(name, [1, 2, 4, 8], [20, 22, None, 90], lo=[18, 20, 1, 70], hi=[25, 25, 2, 99])
    chart.step(f"{name} steps", [1, 3, 8], [30, 10, 50])
    chart.line("default run", [1, 8], [30, 60], ghost=True)
    chart.hline(50, f"{name} SLO")
    chart.vline(4, f"{name} knee")
    return chart


def bars(name: str = "run", *, stacked: bool = False) -> svg.Chart:
    axis = svg.Axis("Policy", categories=[name, "static batching", "continuous"])
    chart = svg.Chart(axis, svg.Axis("Rate (1/s)", unit="1/s"), stacked=stacked)
    chart.bars(name, [1, 2.5, None])
    chart.bars("other", [2, 3, 4])
    chart.bars("default run", [1, 1, 1], ghost=True)
    return chart


def timeline(name: str = "run", rows: int = 3) -> svg.Timeline:
    picture = svg.Timeline(unit="ms", title=name)
    for i in range(rows):
        kinds = itertools.accumulate(svg.KINDS, lambda t, _: t + 7.0, initial=3.0 * i)
        times = list(kinds)
        segments = [
            svg.Segment(a, b, k, name) for a, b, k in zip(times, times[1:], svg.KINDS, strict=False)
        ]
        picture.row(f"{name} {i}", segments, arrival=3.0 * i, first_token=times[2])
    picture.vline(5, name)
    return picture


def scatter(name: str = "run") -> svg.Chart:
    chart = svg.Chart(svg.Axis(name, "log2"), svg.Axis("y", domain=(0, 5)))
    for i in range(8):
        chart.scatter(f"{name} {i}", [1, 2, 64], [i, 2 * i, math.nan])
    return chart


def grids(name: str = "run") -> svg.BlockMap:
    return svg.BlockMap([name, None, "r1", "r1", "r2"], used=[1, 0, 1, 0.25, 0], title=name)


def budget(name: str = "run") -> svg.BudgetBar:
    parts = [svg.Part(name, 300, "prefill"), svg.Part("r1", 1, "decode"), svg.Part("r2", 400, 3)]
    return svg.BudgetBar(parts, 512, title=name)


def empty(name: str = "run") -> svg.Chart:
    chart = svg.Chart(name, name)
    chart.line(name, [], [])
    return chart


PANELS: dict[str, Callable[[str], svg.Panel]] = {
    "lines": lines,
    "bars": bars,
    "stacked": lambda name: bars(name, stacked=True),
    "timeline": timeline,
    "long timeline": lambda name: timeline(name, 40),
    "scatter": scatter,
    "block map": grids,
    "budget": budget,
    "empty": empty,
}


def draw(panel: str, name: str = "run", id: str = "fig") -> svg.Figure:
    return svg.figure(
        id,
        PANELS[panel](name),
        title=f"A picture of {name}",
        summary=f"{name} wins by 2 ms.",
        table=([name, "ITL (ms)"], [[name, 1.5], ["other", 20000]]),
    )


each_panel = pytest.mark.parametrize("panel", PANELS)

# ------------------------------------------------------------------------------ numbers


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e7),
    st.integers(2, 9),
)
def test_linear_ticks_are_round_even_and_inside(lo: float, size: float, count: int) -> None:
    hi = lo + size
    ticks = svg.linear_ticks(lo, hi, count)
    assert 2 <= len(ticks) <= max(count, 5) + 1
    assert all(lo - 1e-6 * size <= t <= hi + 1e-6 * size for t in ticks)
    gaps = [b - a for a, b in itertools.pairwise(ticks)]
    assert max(gaps) - min(gaps) <= 1e-9 * max(1, abs(lo), abs(hi))
    assert f"{gaps[0]:.3e}"[0] in "125"


@given(st.floats(1e-6, 1e6), st.floats(1.05, 1e6), st.integers(2, 9))
def test_log_ticks_increase_inside(lo: float, ratio: float, count: int) -> None:
    for ticks in (svg.log_ticks(lo, lo * ratio, count), svg.log2_ticks(lo, lo * ratio, count)):
        assert 1 <= len(ticks) <= 2 * count + 3
        assert ticks == sorted(set(ticks))
        assert all(lo * (1 - 1e-6) <= t <= lo * ratio * (1 + 1e-6) for t in ticks)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_coordinates_are_plain_decimals(x: float) -> None:
    text = svg.num(x)
    assert re.fullmatch(r"-?\d+(\.\d{1,2})?", text)
    assert text != "-0"
    assert float(text) == pytest.approx(x, abs=0.0051, rel=1e-9)


def test_a_tie_does_not_hang_on_the_last_bit() -> None:
    for tie in (0.125, 10.375, 99.625):
        assert svg.num(tie) == svg.num(math.nextafter(tie, 0)) == svg.num(math.nextafter(tie, 1e9))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (16, "16"), (18000, "18,000"), (0.5, "0.5"), (12.3456, "12.35"),
        (1234.5, "1234"), (123456.7, "123,457"), (0.00002, "2.000e-05"), (-2.0, "-2"),
        (math.nan, "–"), (None, "–"), ("a", "a"),
    ],
)  # fmt: skip
def test_values_for_people(value: svg.Cell, text: str) -> None:
    assert svg.fmt(value) == text


def test_tick_labels_share_a_suffix_on_a_linear_axis() -> None:
    assert svg.tick_labels([0, 5000, 10000]) == ["0", "5k", "10k"]
    assert svg.tick_labels([-1, 0.5]) == ["−1", "0.5"]
    assert svg.tick_labels([100, 1000, 10000], log=True) == ["100", "1000", "10k"]


@given(st.lists(st.floats(0, 300), min_size=1, max_size=12).map(sorted))
def test_direct_labels_stay_apart_and_inside(wanted: list[float]) -> None:
    places = svg.chart._spread(wanted, 20, 0, 300)
    assert all(b - a >= 20 - 1e-6 for a, b in itertools.pairwise(places))
    assert places[0] >= -1e-6
    assert places[-1] <= 300 + 1e-6
    if all(b - a >= 20 for a, b in itertools.pairwise(wanted)):
        assert places == pytest.approx(wanted)


# ------------------------------------------------------------------------------- markup


@each_panel
def test_pictures_are_well_formed_and_named(panel: str) -> None:
    root = ET.fromstring(draw(panel).svg)
    assert root.get("role") == "img"
    title, desc = (root.find(f"{NS}{t}") for t in ("title", "desc"))
    assert title is not None
    assert desc is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert (title.text, desc.text) == ("A picture of run", "run wins by 2 ms.")
    width, height = root.get("width"), root.get("height")
    assert root.get("viewBox") == f"0 0 {width} {height}"


@each_panel
def test_labels_cannot_break_out(panel: str) -> None:
    figure = draw(panel, NASTY)
    root = ET.fromstring(figure.svg)
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    text = "".join(root.itertext())
    assert "alert" in text
    assert "\x07" not in text
    assert "\udcff" not in text
    page = figure.to_html()
    assert "<script" not in page
    ET.fromstring(f"<div>{page}</div>")


@each_panel
def test_same_input_same_bytes(panel: str) -> None:
    assert draw(panel) == draw(panel)


def test_bytes_do_not_hang_on_hash_order() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_svg as t\n"
        "print([t.draw(p).to_html() for p in t.PANELS])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(svg.__file__).parents[2])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@each_panel
def test_ids_are_unique_and_references_resolve(panel: str) -> None:
    figure = draw(panel)
    for picture, prefix in ((figure.svg, "fig-"), (figure.with_id("again").svg, "again-")):
        ids = re.findall(r'\sid="([^"]+)"', picture)
        assert len(ids) == len(set(ids))
        assert all(i.startswith(prefix) for i in ids)
        labeled = re.findall(r'aria-labelledby="([^"]+)"', picture)[0].split()
        used = set(re.findall(r"url\(#([^)]+)\)", picture)) | set(labeled)
        assert used == set(ids)


def test_an_id_in_a_label_is_left_alone() -> None:
    figure = draw("lines", ' id="fig-x" url(#fig-y')
    text = "".join(ET.fromstring(figure.with_id("other").svg).itertext())
    assert ' id="fig-x" url(#fig-y' in text


@each_panel
def test_text_is_large_enough_on_a_phone(panel: str) -> None:
    figure = draw(panel)
    root = ET.fromstring(figure.svg)
    size, width = float(root.get("font-size", "0")), float(root.get("width", "0"))
    assert not [e for e in root.iter() if e is not root and e.get("font-size")]
    # 360 px less the theme's margins; a timeline keeps its size and scrolls.
    assert size * (1 if figure.scroll else min(1, 328 / width)) >= 9
    assert ("live-scroll" in figure.picture_html()) is figure.scroll


@each_panel
def test_text_stays_inside_the_picture(panel: str) -> None:
    root = ET.fromstring(draw(panel).svg)
    width, size = float(root.get("width", "0")), float(root.get("font-size", "0"))
    for text in root.iter(f"{NS}text"):
        w, x = svg.text_width(text.text or "", size), float(text.get("x", "0"))
        left = x - w * {"end": 1.0, "middle": 0.5}.get(text.get("text-anchor", ""), 0.0)
        assert left >= -1, text.text
        assert left + w <= width + 1, text.text


def test_flatten_leaves_plain_colors() -> None:
    for dark, ink in ((False, svg.THEME["ink"]), (True, svg.THEME_DARK["ink"])):
        plain = svg.flatten(draw("timeline").svg, dark=dark)
        assert "var(" not in plain
        assert ink in plain
        ET.fromstring(plain)


# --- files for slides and print


def test_a_saved_svg_is_the_picture_in_plain_colors(tmp_path: Path) -> None:
    figure = draw("timeline")
    for dark in (False, True):
        path = figure.save(tmp_path / "slide.svg", dark=dark)
        assert path.read_text() == svg.flatten(figure.svg, dark=dark) + "\n"
        ET.parse(path)
    assert [p.name for p in tmp_path.iterdir()] == ["slide.svg"]


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="needs rsvg-convert")
@pytest.mark.parametrize(("name", "begins"), [("a.pdf", b"%PDF"), ("a.PNG", b"\x89PNG")])
def test_a_figure_saves_what_slides_take(tmp_path: Path, name: str, begins: bytes) -> None:
    assert draw("lines").save(tmp_path / name).read_bytes().startswith(begins)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_file_that_cannot_be_saved_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = draw("lines")
    with pytest.raises(InputError, match=r"ends in \.svg, \.pdf or \.png"):
        figure.save(tmp_path / "a.gif")
    with pytest.raises(InputError, match="cannot be written"):
        figure.save(tmp_path / "nowhere" / "a.svg")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InputError, match=r"rsvg-convert .*save an \.svg"):
        figure.save(tmp_path / "a.pdf")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(broken))
    with pytest.raises(InputError, match="rsvg-convert failed: no room"):
        figure.save(tmp_path / "a.pdf")
    assert [p.name for p in tmp_path.iterdir()] == ["broken"]


def test_figure_as_html_and_text() -> None:
    figure = draw("lines")
    root = ET.fromstring(f"<div>{figure.to_html()}</div>")
    assert [e.get("class") for e in root] == ["live-picture", "live-summary", "live-numbers"]
    assert [th.text for th in root.iter("th")] == ["run", "ITL (ms)", "run", "other"]
    assert figure.to_text() == (
        "run wins by 2 ms.\n\nrun    ITL (ms)\nrun         1.5\nother    20,000"
    )
    bundle = figure._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}


def test_panels_share_an_x_axis() -> None:
    first, second = svg.Chart("Time (s)", "a"), svg.Chart("Time (s)", "b")
    first.line("", [0, 10], [1, 2])
    second.line("", [5, 20], [1000, 2000])
    figure = svg.figure("both", first, second, title="t", share_x=True)
    assert figure.svg.count("Time (s)") == 1
    starts = re.findall(r'd="M([\d.]+) [\d.]+L([\d.]+)', figure.svg)
    (a, b), (c, d) = [(float(p), float(q)) for p, q in starts]
    assert (c - a) * 2 == pytest.approx(b - a, abs=0.05)
    assert d > b


def test_hatch_and_marker_go_with_every_color() -> None:
    looks = [svg.style(i) for i in range(1, 37)]
    assert len({(s.color, s.hatch) for s in looks}) == 36
    assert len({s.hatch for s in looks[:6]}) == len({s.marker for s in looks[:6]}) == 6
    kinds = [(s.hatch, s.height, s.hollow) for s in svg.KINDS.values()]
    assert len(set(kinds)) == len(kinds)


def test_block_map_keeps_the_looks_it_is_given() -> None:
    before = svg.BlockMap(["r1", "r2"], slots={"r1": 1, "r2": 2})
    after = svg.BlockMap(["r2", "r9"], slots={"r1": 1, "r2": 2})
    assert before._looks["r2"] == after._looks["r2"]
    assert after._looks["r9"] == svg.style(3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: svg.Axis(scale="cubic"), "linear, log or log2"),  # type: ignore[arg-type]
        (lambda: svg.Axis(domain=(2, 1)), "low to high"),
        (lambda: svg.Axis(scale="log", domain=(0, 1)), "above zero"),
        (lambda: svg.Chart().line("a", [1], [1, 2]), "'a' has 1 places and 2 values"),
        (lambda: svg.Chart().line("a", [1], [1], lo=[1]), "one lo and one hi"),
        (lambda: svg.Chart().line("a", [1], [1], color="sleeping"), "'sleeping'"),
        (lambda: svg.Chart().line("a", [1], [1], color=0), "from 1"),
        (lambda: svg.Chart().bars("a", [1]), "categories"),
        (lambda: svg.Timeline().row("r1", [svg.Segment(2, 1, "decode")]), "'r1'"),
        (lambda: svg.Timeline().row("r1", [svg.Segment(1, 2, "lunch")]), "'lunch'"),
        (lambda: svg.BlockMap(["a"], used=[2]), "0 to 1"),
        (lambda: svg.BudgetBar([], 0), "limit"),
        (lambda: svg.BudgetBar([svg.Part("a", -1, 1)], 1), "'a'"),
        (lambda: svg.figure("1st", empty(), title="t"), "'1st'"),
        (lambda: svg.figure("a", title="t"), "no panels"),
        (lambda: svg.figure("a", empty(), title="t", table=(["x"], [[1, 2]])), "2 cells"),
    ],
)
def test_bad_input_is_named_in_one_sentence(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------ colors


def linear_rgb(color: str) -> list[float]:
    values = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in values]


def contrast(one: str, other: str) -> float:
    weights = (0.2126, 0.7152, 0.0722)
    light = [sum(w * c for w, c in zip(weights, linear_rgb(x), strict=True)) for x in (one, other)]
    return (max(light) + 0.05) / (min(light) + 0.05)


def lab(rgb: list[float]) -> tuple[float, float, float]:
    r, g, b = (min(1.0, max(0.0, c)) for c in rgb)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


# How the three kinds of dichromats see (Machado, Oliveira and Fernandes 2009, severity 1).
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
BOTH = pytest.mark.parametrize("theme", [svg.THEME, svg.THEME_DARK], ids=["light", "dark"])


@BOTH
def test_contrast(theme: dict[str, str]) -> None:
    # The page may be the book theme's or the one it is built on.
    pages = [theme["bg"], "#14181e"] if theme is svg.THEME_DARK else [theme["bg"]]
    for page in pages:
        assert all(contrast(theme[t], page) >= 4.5 for t in ("ink", "muted"))
        for name in ("axis", "c1", "c2", "c3", "c4", "c5", "c6"):
            assert contrast(theme[name], page) >= 3, name


@BOTH
@pytest.mark.parametrize("kind", BLINDNESS)
def test_colors_stay_apart_for_the_color_blind(theme: dict[str, str], kind: str) -> None:
    colors = [theme[f"c{i}"] for i in range(1, 7)]
    seen = [
        lab(
            [sum(m * c for m, c in zip(row, linear_rgb(x), strict=True)) for row in BLINDNESS[kind]]
        )
        for x in colors
    ]
    assert min(math.dist(a, b) for a, b in itertools.combinations(seen, 2)) > 15


def test_the_style_sheet_has_the_same_colors() -> None:
    css = LIVE_CSS.read_text(encoding="utf-8")
    blocks = {
        ":root": svg.THEME,
        'html[data-theme="dark"]': svg.THEME_DARK,
        '  :root,\n  html[data-theme="dark"]': svg.THEME,  # print
    }
    for selector, theme in blocks.items():
        match = re.search(rf"^{re.escape(selector)} \{{([^}}]*)\}}", css, re.MULTILINE)
        assert match, selector
        pairs = re.findall(r"--ss-(\w+): (?:var\([^,]*, )?(#\w{6})\)?;", match[1])
        assert dict(pairs) == {k: v.lower() for k, v in theme.items()}
