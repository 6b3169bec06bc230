"""The page for instructors: its plans, links, commands and promises are true."""

from __future__ import annotations

import ast
import contextlib
import functools
import html
import itertools
import re
import shlex
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jupytext
import pytest
import yaml

from servesim import cli, figs
from servesim.explore import Explorer, figure_id
from servesim.grade import NAMES, find, folder, release
from servesim.grade import cli as grade_cli
from servesim.grade.process import MIB, Limits
from servesim.grade.roster import Entry
from servesim.steps import Steps
from servesim.svg import Figure
from tests.test_apparatus import role_contents
from tools.golden import MYST, code_cells

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = ROOT / "chapters"
TEXT = (CHAPTERS / "for-instructors.md").read_text(encoding="utf-8")
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
MAIN = [TOC["root"], *(chapter["file"] for chapter in TOC["parts"][0]["chapters"])]


def section(title: str) -> str:
    """Return what stands under a heading, up to the next of its level."""
    head = re.search(rf"^(#+) {re.escape(title)}\n", TEXT, re.M)
    assert head, title
    rest = TEXT[head.end() :]
    after = re.search(rf"^#{{1,{len(head[1])}}} ", rest, re.M)
    return rest[: after.start()] if after else rest


def rows(text: str) -> list[list[str]]:
    """Return the rows of a Markdown table, without its head."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def plain(text: str) -> str:
    """Return text without roles and emphasis, in single spaces."""
    text = re.sub(r"\{[\w:]+\}`([^`<]*?)(?:\s*<[^>]*>)?`", r"\1", text)
    return " ".join(re.sub(r"\*\*|\*", "", text).split()).lower()


def page_of(label: str) -> Path:
    """Return the chapter that begins with a label."""
    files = [CHAPTERS / f"{label.removeprefix('sec-')}.md", *CHAPTERS.rglob("*.md")]
    return next(file for file in files if file.exists() and f"({label})=\n# " in file.read_text())


# --- links to figures with their values


def links(text: str) -> list[str]:
    """Return the addresses with values; as HTML, since MyST escapes their `&` twice."""
    assert not re.search(r"\]\([^)]*\?", text)
    return [html.unescape(url) for url in re.findall(r'<a href="([^"]*\?[^"]*)">', text)]


LINKS = sorted(set(links(TEXT)))


def asked(url: str) -> tuple[str, str, dict[str, str]]:
    """Return chapter, id of the figure, and the values that a link asks for."""
    parts = urllib.parse.urlsplit(url)
    site = urllib.parse.urlsplit(CONFIG["html"]["baseurl"])
    assert (parts.scheme, parts.netloc) == (site.scheme, site.netloc)
    page = parts.path.removeprefix(site.path).removesuffix(".html")
    values = {}
    for name, value in urllib.parse.parse_qsl(parts.query, strict_parsing=True):
        figure, _, parameter = name.partition(".")
        assert figure == parts.fragment, f"{url}: leads to {parts.fragment}, sets {name}"
        values[parameter] = value
    return page, parts.fragment, values


@functools.cache
def figures(page: str) -> dict[str, Explorer]:
    """Return a chapter's live figures by id; steppers are looked at apart."""
    found = {}
    for cell in code_cells(jupytext.read(ROOT / f"{page}.md", fmt=MYST)):
        if "explore(" not in cell.source or "def explore" in cell.source:
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "explore":
                target = ast.literal_eval(node.args[0])
                given = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg}
                extra = {k: given.pop(k) for k in ("labels", "fixed", "id") if k in given}
                explorer = Explorer(target, given, **extra)
                found[extra.get("id") or figure_id(target)] = explorer
    return found


def shown(url: str) -> Figure:
    """Return the picture that a link opens."""
    page, figure, values = asked(url)
    explorer = figures(page)[figure]
    drawn = {}
    for name, text in values.items():
        default = explorer.params[name].default
        value = text if isinstance(default, str) else type(default)(float(text))
        drawn[name] = explorer.params[name].clean(value)
        assert str(drawn[name]) == text or float(drawn[name]) == float(text), f"{url}: {name}"
    return explorer.figure(**drawn)


def test_there_are_links_and_each_chapter_has_a_live_figure_opened() -> None:
    assert {asked(url)[0] for url in LINKS} == set(MAIN)


@pytest.mark.parametrize("url", [u for u in LINKS if "#stepper" not in u])
def test_a_link_asks_for_values_that_the_figure_can_have(url: str) -> None:
    assert shown(url).svg.startswith("<svg")


@pytest.mark.parametrize("url", [u for u in LINKS if "#stepper" in u])
def test_a_link_to_a_stepper_names_its_controls(url: str) -> None:
    page, _, values = asked(url)
    text = (ROOT / f"{page}.md").read_text()
    assert values.keys() <= {"step", "run"}
    assert "\nstepper(" in text
    assert f'"{values["run"]}": ' in text
    assert Steps(int(values["step"])).default >= 0


def cells(figure: Figure, name: str) -> list[Any]:
    """Return a column of a figure's table."""
    assert figure.table is not None
    at = list(figure.table.header).index(name)
    return [row[at] for row in figure.table.rows]


def at(figure: Figure, row: object, name: str) -> float:
    """Return a number of a figure's table."""
    assert figure.table is not None
    first = [str(r[0]) for r in figure.table.rows]
    value = cells(figure, name)[first.index(str(row))]
    return float(str(value).replace(",", "").removeprefix("below "))


def seen_requests(bursts: Figure) -> bool:
    longest = [max(cells(figure, "TTFT (ms)")) for figure in (bursts, figs.arrivals(cv=0.0))]
    return bool(longest[0] > 10 * longest[1])  # of 32 requests the longest is P99


def seen_step_cost(figure: Figure) -> bool:
    return at(figure, 32, "step (ms)") < 1.5 * at(figure, 1, "step (ms)")


def seen_naive(figure: Figure) -> bool:
    rate, busy = map(float, re.findall(r"([\d.]+) (?:requests/s|of its time)", figure.summary))
    service_s = busy / rate
    return 0.7 <= busy <= 0.8 and at(figure, "theory", "mean wait (s)") > 3 * service_s


def seen_static(figure: Figure) -> bool:
    ttft, filling = map(float, re.findall(r"([\d.]+) s(?:,| go)", figure.summary))
    return filling > 0.95 * ttft


def seen_continuous(static: Figure, ours: Figure) -> bool:
    speed, ttft = "throughput (tokens/s)", "mean TTFT (ms)"
    same = abs(at(static, 16, speed) / at(ours, 16, speed) - 1) < 0.05
    return same and at(static, 16, ttft) > 10 * at(ours, 16, ttft)


def seen_p99(figure: Figure) -> bool:
    p99, longest = "P99 ITL (ms)", "longest gap (ms)"
    lower = at(figure, "none", p99) < at(figure, 512, p99)
    return lower and at(figure, "none", longest) > 3 * at(figure, 512, longest)


def seen_slices(figure: Figure) -> bool:
    ttft = "mean TTFT (ms)"
    return at(figure, 128, ttft) > max(2000, 2 * at(figure, "none", ttft))


def seen_kv(most: Figure) -> bool:
    paged, last = figs.kv_blocks(), "last token (s)"
    slow = max(cells(most, last)) > 2 * max(cells(paged, last))
    return bool(slow and sum(cells(most, "preempted")) == 0 < sum(cells(paged, "preempted")))


def seen_four_modes(figure: Figure) -> bool:
    published, ours = "published tokens/s", "tokens/s"
    led = at(figure, "static", published) > 4 * at(figure, "continuous", published)
    return led and at(figure, "continuous", ours) > 2 * at(figure, "static", ours)


def seen_vllm(*older_newer: Figure) -> bool:
    pattern = r"(\d+) preemptions, (\d+) tokens computed again, mean TTFT ([\d.]+) ms"
    old, new = (map(float, re.findall(pattern, f.summary)[0]) for f in older_newer)
    return all(a > b for a, b in zip(old, new, strict=True))


def seen_bound(long: Figure) -> bool:
    short = figs.lower_bound()
    return all(at(long, n, "static (%)") > at(short, n, "static (%)") + 10 for n in (8, 16))


def seen_capacity(*promises: Figure) -> bool:
    best = []
    for figure in promises:
        rates = {str(n): at(figure, n, "capacity (requests/s)") for n in cells(figure, "policy")}
        best.append({name for name, rate in rates.items() if rate == max(rates.values())})
    return not best[0] & best[1]


SEEN: list[Callable[..., bool]] = [
    seen_requests,
    seen_step_cost,
    seen_naive,
    seen_static,
    seen_continuous,
    seen_p99,
    seen_slices,
    seen_kv,
    seen_four_modes,
    seen_vllm,
    seen_bound,
    seen_capacity,
]
BELIEFS = rows(section("What people get wrong"))[1:]
"""The first one's figure is a stepper; its chapter says the numbers."""


@pytest.mark.parametrize(("seen", "row"), [*zip(SEEN, BELIEFS, strict=True)])
def test_what_a_link_is_said_to_show_it_shows(seen: Callable[..., bool], row: list[str]) -> None:
    """The last column of the table is true of the pictures that its links open."""
    assert seen(*(shown(url) for url in links(row[2])))


# --- plans and goals


def labels(text: str) -> list[str]:
    return [name for name in role_contents(text, "ref") if name.startswith("sec-")]


@pytest.mark.parametrize("title", ["Goals, chapter by chapter", "What people get wrong"])
def test_every_chapter_has_its_goal_and_its_misconception(title: str) -> None:
    named = [page_of(labels(row[0])[0]) for row in rows(section(title))]
    assert list(dict.fromkeys(named)) == [ROOT / f"{file}.md" for file in MAIN]


@pytest.mark.parametrize("row", rows(section("Goals, chapter by chapter")), ids=lambda r: r[0])
def test_a_goal_is_told_in_the_words_of_its_chapter(row: list[str]) -> None:
    text = page_of(labels(row[0])[0]).read_text()
    box = text[: text.index("Reading time")]
    assert plain(row[1]) in plain(box)


def reading(label: str) -> int:
    """Return a chapter's own reading time, in minutes."""
    text = plain(page_of(label).read_text())
    found = re.search(r"reading time\W+(?:about )?(\d+) minutes", text)
    assert found, label
    return int(found[1])


def test_the_lecture_takes_the_minutes_that_it_says() -> None:
    *parts, total = [row[0].strip("*") for row in rows(section("One lecture"))]
    assert sum(map(int, parts)) == int(total) == 90


@pytest.mark.parametrize("title", ["One week", "One month"])
def test_plans_add_up_the_chapters_own_reading_times(title: str) -> None:
    table = rows(section(title))
    assert len(table) in (3, 4)
    for _, read, minutes, *_ in table:
        assert sum(map(reading, labels(read))) == int(minutes), read


def test_the_month_reads_every_chapter_and_hands_out_every_assignment() -> None:
    text = section("One month")
    read = {page_of(label) for row in rows(text) for label in labels(row[1])}
    assert {ROOT / f"{file}.md" for file in MAIN} <= read
    found = re.search(r"^month = (\{.*?^\})", text, re.M | re.DOTALL)
    assert found
    names = [name for week in ast.literal_eval(found[1]).values() for name in week]
    assert sorted(names) == sorted(NAMES)


# --- commands, code and promises


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.M | re.DOTALL)


def commands() -> list[str]:
    lines = [line for b in blocks("sh") for line in b.replace("\\\n", " ").splitlines()]
    return lines + re.findall(r"`(python -m [^`]+|make [^`]+)`", TEXT)


@pytest.mark.parametrize("line", commands())
def test_a_command_is_one(line: str) -> None:
    words = shlex.split(line)
    if "python" in words and "-m" in words:
        module, *rest = words[words.index("-m", words.index("python")) + 1 :]
        parsers = {"servesim.grade": grade_cli.parser, "servesim": cli.parser}
        if module in parsers:
            args = parsers[module]().parse_args(rest)
            assert getattr(args, "assignment", "aging") in NAMES
            if args.run is grade_cli._check:
                assert (ROOT / args.file).is_file()
        else:
            assert module == "pytest"
            tests = (ROOT / rest[rest.index("tests/test_project.py")]).read_text()
            assert re.search(rf"^def test_\w*{rest[rest.index('-k') + 1]}", tests, re.M)
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
    else:
        assert words[0] in ("chmod", "mkdir")


def test_a_flag_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(Exception, match="unrecognized"):
        test_a_command_is_one("python -m servesim.grade release ../course --nice")


def test_flags_named_in_the_text_exist() -> None:
    helped = "".join(
        command.format_help()
        for action in grade_cli.parser()._subparsers._group_actions  # type: ignore[union-attr]
        for command in action.choices.values()  # type: ignore[union-attr]
    )
    text = section("Assignments")
    words = re.findall(r"`(--[\w-]+)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    assert words
    assert [flag for flag in words if flag not in helped] == []


def test_code_on_the_page_saves_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, space)
    saved = re.findall(r'save(?:fig)?\("([^"]+)"', "".join(blocks("python")))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(saved)
    with contextlib.suppress(ImportError):
        from matplotlib import pyplot as plt

        plt.close("all")


def test_the_limits_are_those_of_the_grader() -> None:
    unit = {"memory": MIB, "output": MIB}
    told = {}
    for what, most, _ in rows(section("What is protected, and what is not")):
        name = re.findall(r"`(\w+)`", what)[0]
        told[name] = float(most) * unit.get(name, 1)
    limits = Limits()
    assert told == {name: getattr(limits, name) for name in told}
    assert told.keys() | {"answer"} == {*Limits.__dataclass_fields__}


def test_the_columns_of_the_grades_are_those() -> None:
    assignment = find("warmup")
    row = folder._row(Entry("Bob"), assignment, folder.Terms(), {}, {})
    told = re.search(r"A row of the CSV has (.*?)\.", TEXT)
    assert told
    own = [name for name in row if name not in [rule.name for rule in assignment.rules]]
    assert re.findall(r"`(\w+)`", told[1]) == own


def test_files_that_the_page_names_exist() -> None:
    names = re.findall(r"`((?:code|instructor|\.github|assignments)/[\w./-]*)`", TEXT)
    assert names
    whole = (ROOT / "instructor").is_dir()  # else this is a students' copy
    for name in names if whole else itertools.filterfalse(release._left_out, names):
        assert (ROOT / name).exists(), name
