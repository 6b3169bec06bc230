"""Golden outputs: what every cell of every chapter gave when it was last looked at.

``python tools/golden.py [CHAPTER.md ...]`` runs the chapters and writes `tests/golden/NAME.json`
(`make golden` does it for all). `pytest --nbval chapters` then compares. Read the difference
(`git diff tests/golden`) before committing it: it is what a reader will see change.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jupytext
import nbclient
import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
# Told, not guessed: a chapter whose header is incomplete would be read as one long text cell.
MYST = {"extension": ".md", "format_name": "myst"}
MEND = "run `make golden`, then read `git diff tests/golden`"
# Neither stored nor compared: pixels and matplotlib's SVG depend on fonts and versions, a
# widget's view on a random number. The simulator's own figures are text/html and are compared.
NOT_COMPARED = (
    "image/png",
    "image/jpeg",
    "image/svg+xml",
    "application/papermill.record/image/png",
    "application/vnd.jupyter.widget-view+json",
)


SVG = r"(?s)<svg\b.*?</svg>"


class NotGoldenError(Exception):
    """A chapter has no golden outputs, or those of another version of it."""


def is_notebook(path: Path) -> bool:
    """Tell whether `path` is a MyST file with code to run."""
    return path.suffix == ".md" and "{code-cell}" in path.read_text(encoding="utf-8")


def golden_path(chapter: Path, root: Path = ROOT) -> Path:
    """Return where a chapter's golden outputs lie.

    The name ends in `.json`: nbval would take an `.ipynb` for a test of its own.
    """
    return root / "tests" / "golden" / chapter.relative_to(root / "chapters").with_suffix(".json")


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def digest(figure: re.Match[str]) -> str:
    """Return what stands for an SVG figure: compared to the last byte, yet short to read."""
    return f"<svg: sha256 {hashlib.sha256(figure[0].encode()).hexdigest()[:16]}>"


def read_with_golden(chapter: Path, root: Path = ROOT) -> NotebookNode:
    """Return a chapter as a notebook that holds its golden outputs.

    Raises
    ------
    NotGoldenError
        If there are none, or if they belong to another version of the chapter's code.
    """
    notebook, golden = jupytext.read(chapter, fmt=MYST), golden_path(chapter, root)
    name = golden.relative_to(root)
    if not golden.is_file():
        raise NotGoldenError(f"{name} is missing: {MEND}")
    ours, theirs = code_cells(notebook), code_cells(nbformat.read(golden, as_version=4))
    if [cell.source for cell in ours] != [cell.source for cell in theirs]:
        raise NotGoldenError(f"{name} is older than the chapter: {MEND}")
    if not ours:
        raise NotGoldenError(f"{chapter.name} has no cell that runs: mend its header")
    if any(cell.execution_count is None for cell in theirs):
        raise NotGoldenError(f"{name} holds a cell that never ran: {MEND}")
    for cell, answer in zip(ours, theirs, strict=True):
        cell.outputs, cell.execution_count = answer.outputs, answer.execution_count
    return notebook


def comparable(output: NotebookNode) -> NotebookNode:
    """Return a cell's output with only what is compared, figures shortened."""
    data = output.get("data", {})
    kept = {kind: value for kind, value in data.items() if kind not in NOT_COMPARED}
    for kind, value in kept.items():
        kept[kind] = re.sub(SVG, digest, value) if isinstance(value, str) else value
    return nbformat.from_dict({**output, "data": kept} if data else output)


def run(chapter: Path, times: int = 1) -> NotebookNode:
    """Run a chapter in its folder; return its code cells with what is to be compared.

    With `times` above 1, from top to bottom that often in one kernel.
    """
    notebook = jupytext.read(chapter, fmt=MYST)
    notebook.cells = [copy.deepcopy(cell) for _ in range(times) for cell in notebook.cells]
    where = {"metadata": {"path": str(chapter.parent)}}
    # How much a kernel sends of a text at once is chance.
    client = nbclient.NotebookClient(notebook, timeout=60, resources=where, coalesce_streams=True)
    client.execute()
    cells = []
    for number, cell in enumerate(code_cells(notebook)):
        ignored = "nbval-ignore-output" in cell.metadata.get("tags", [])
        cells.append(
            nbformat.v4.new_code_cell(
                cell.source,
                id=f"cell-{number}",
                outputs=[] if ignored else [comparable(output) for output in cell.outputs],
                execution_count=cell.execution_count,
            )
        )
    return nbformat.v4.new_notebook(cells=cells)


def write(chapter: Path) -> str:
    """Write a chapter's golden outputs; return one line about it."""
    golden = golden_path(chapter)
    before = golden.read_text(encoding="utf-8") if golden.is_file() else None
    try:
        after = nbformat.writes(run(chapter)) + "\n"
    except nbclient.exceptions.CellExecutionError as error:
        raise SystemExit(f"{chapter.relative_to(ROOT)}: a cell failed.\n{error}") from None
    golden.parent.mkdir(parents=True, exist_ok=True)
    golden.write_text(after, encoding="utf-8")
    return f"{'unchanged' if before == after else 'written  '}  {golden.relative_to(ROOT)}"


def main() -> None:
    """Write the golden outputs of the named chapters, or of all, and delete orphans."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("chapters", nargs="*", metavar="FILE", help="in chapters/; all if none")
    names = parser.parse_args().chapters
    chapters = [Path(name).resolve() for name in names]
    if not chapters:
        chapters = sorted(filter(is_notebook, (ROOT / "chapters").rglob("*.md")))
        keep = {golden_path(chapter) for chapter in chapters}
        for orphan in set((ROOT / "tests" / "golden").rglob("*.json")) - keep:
            orphan.unlink()
            print(f"deleted    {orphan.relative_to(ROOT)}")
    for name, chapter in zip(names, chapters, strict=False):
        if not chapter.is_file() or not chapter.is_relative_to(ROOT / "chapters"):
            parser.error(f"{name} is not a chapter: name files in chapters/, or none for all")
    with ProcessPoolExecutor(max_workers=2) as pool:
        for line in pool.map(write, chapters):
            print(line, flush=True)


if __name__ == "__main__":
    main()
