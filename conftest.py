"""Let nbval test the chapters, which are MyST files: `pytest --nbval chapters`.

nbval knows only `.ipynb` files that hold their outputs. A chapter holds none, so its golden
outputs are attached here from `tests/golden`; without them nbval would compare nothing and pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from nbval import plugin as nbval

from tools.golden import NOT_COMPARED, SVG, NotGoldenError, digest, is_notebook, read_with_golden


class MystFile(nbval.IPyNbFile):
    """A chapter, run by nbval in the chapter's folder."""

    def setup(self) -> None:
        """Start the kernel; say what is compared, and how."""
        super().setup()
        self.sanitize_patterns[SVG] = digest
        self.skip_compare = (*self.skip_compare, *NOT_COMPARED)

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one test for each code cell."""
        try:
            notebook = read_with_golden(self.path, root=self.config.rootpath)
        except NotGoldenError as problem:
            raise self.CollectError(str(problem)) from None
        with mock.patch.object(nbval.nbformat, "read", return_value=notebook):
            yield from list(super().collect())


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take every MyST notebook when nbval is asked for."""
    if parent.config.option.nbval and is_notebook(file_path):
        return MystFile.from_parent(parent, path=file_path)
    return None
