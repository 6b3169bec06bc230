"""What every chapter must be, whatever it says."""

import re
from pathlib import Path

import jupytext
import pytest
import yaml

from tools.golden import MYST, code_cells, is_notebook, read_with_golden

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "chapters").rglob("*.md"))
NOTEBOOKS = [page for page in PAGES if is_notebook(page)]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_page_is_in_the_table_of_contents() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = {toc["root"]} | {
        chapter["file"] for part in toc["parts"] for chapter in part["chapters"]
    }
    assert listed == {named(page.with_suffix("")) for page in PAGES}


@pytest.mark.parametrize("page", NOTEBOOKS, ids=named)
def test_jupyter_reads_the_page_as_we_do(page: Path) -> None:
    """The header alone must say that this is MyST, or Jupyter opens one long text cell."""
    by_itself = code_cells(jupytext.read(page))
    assert [cell.source for cell in by_itself] == [
        cell.source for cell in code_cells(jupytext.read(page, fmt=MYST))
    ]


@pytest.mark.parametrize("page", NOTEBOOKS, ids=named)
def test_cells_are_short(page: Path) -> None:
    for cell in code_cells(jupytext.read(page, fmt=MYST)):
        lines = cell.source.splitlines()
        assert len(lines) <= 20, f"longer than 20 lines: {lines[0]}"


@pytest.mark.parametrize("page", NOTEBOOKS, ids=named)
def test_cells_avoid_what_does_not_work_here(page: Path) -> None:
    for cell in code_cells(jupytext.read(page, fmt=MYST)):
        # Their Output widget makes a build wait out the cell's whole time limit now and then.
        assert not re.search(r"\binteract(ive|ive_output)?\(", cell.source), "use explore(...)"
        # A kernel that is not IPython's terminal prints the value all the same.
        assert not cell.source.rstrip().endswith(";"), "write `_ = ...` to silence a value"


@pytest.mark.parametrize("page", NOTEBOOKS, ids=named)
def test_there_is_something_to_compare(page: Path) -> None:
    assert any(cell.outputs for cell in code_cells(read_with_golden(page)))
