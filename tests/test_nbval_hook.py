"""The check of the chapters' outputs can fail: each test breaks one thing and expects red."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""
CHAPTER = (
    HEADER
    + """
# A chapter

```{code-cell}
wait_ms = 41 + 1
print("waited", wait_ms, "ms")
```

```{code-cell}
from IPython.display import HTML
HTML(f"<svg><rect width='{wait_ms}'/></svg>")
```
"""
)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of one chapter with its golden outputs, in a folder with a space in its name."""
    book = tmp_path / "a book"
    (book / "chapters").mkdir(parents=True)
    (book / "chapters" / "waiting.md").write_text(CHAPTER)
    for name in ("conftest.py", "pyproject.toml", "tools/golden.py"):
        (book / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, book / name)
    made = subprocess.run(
        [sys.executable, "tools/golden.py"], cwd=book, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return book


def check(book: Path) -> tuple[int, str]:
    """Run the check as the Makefile does; return its exit status and what it says."""
    options = ["-q", "--color=no", "--nbval", "--nbval-current-env", "chapters"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=book, capture_output=True, text=True
    )
    return run.returncode, run.stdout + run.stderr


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def golden(book: Path) -> Path:
    return book / "tests" / "golden" / "waiting.json"


def test_an_unchanged_chapter_passes(book: Path) -> None:
    status, said = check(book)
    assert status == 0, said
    assert "2 passed" in said


def test_a_changed_number_fails_and_is_shown(book: Path) -> None:
    replace(golden(book), "waited 42 ms", "waited 43 ms")
    status, said = check(book)
    assert status == 1
    assert "1 failed, 1 passed" in said
    assert "waited 42 ms" in said
    assert "waited 43 ms" in said


def test_a_changed_figure_fails(book: Path) -> None:
    notebook = json.loads(golden(book).read_text())
    notebook["cells"][1]["outputs"][0]["data"]["text/html"] = ["<svg><rect width='43'/></svg>"]
    golden(book).write_text(json.dumps(notebook))
    status, said = check(book)
    assert status == 1
    assert "1 failed, 1 passed" in said


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (lambda book: golden(book).unlink(), "is missing: run `make golden`"),
        (
            lambda book: replace(book / "chapters" / "waiting.md", "41 + 1", "40 + 2"),
            "is older than the chapter: run `make golden`",
        ),
        (
            lambda book: replace(golden(book), '"execution_count": 1', '"execution_count": null'),
            "holds a cell that never ran: run `make golden`",
        ),
    ],
    ids=["missing", "out of date", "never run"],
)
def test_golden_outputs_that_do_not_fit_are_refused(book: Path, breaks, says: str) -> None:
    breaks(book)
    status, said = check(book)
    assert status != 0
    assert says in said
    assert "Traceback" not in said
