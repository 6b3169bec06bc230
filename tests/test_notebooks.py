"""A chapter leaves nothing behind in its kernel that would change its own answers."""

from pathlib import Path

import pytest

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
