"""A chapter leaves nothing behind in its kernel that would change its own answers."""

from pathlib import Path

import pytest

from tests.test_nbval_hook import HEADER
from tools import golden

CHAPTERS = sorted(filter(golden.is_notebook, (golden.ROOT / "chapters").rglob("*.md")))


@pytest.mark.long
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_run_twice_in_one_kernel_gives_the_same(chapter: Path) -> None:
    cells = golden.run(chapter, times=2).cells
    first, second = cells[: len(cells) // 2], cells[len(cells) // 2 :]
    assert [cell.source for cell in first] == [cell.source for cell in second]
    for before, after in zip(first, second, strict=True):
        for output in (*before.outputs, *after.outputs):
            output.pop("execution_count", None)
        assert after.outputs == before.outputs, before.source


def test_golden_outputs_do_not_tell_how_much_was_sent_at_once(tmp_path: Path) -> None:
    chapter = tmp_path / "chapter.md"
    cells = 'print("first", flush=True)\nprint("second", flush=True)'
    chapter.write_text(f"{HEADER}\n```{{code-cell}} ipython3\n{cells}\n```\n")
    (cell,) = golden.run(chapter).cells
    assert [output.text for output in cell.outputs] == ["first\nsecond\n"]
