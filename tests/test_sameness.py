"""The same digits everywhere: `tests/sameness.py` run under other circumstances.

`tests/test_browser.py` runs it in the page's Python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import servesim
from tests import sameness

SCRIPT = Path(sameness.__file__)
CODE = Path(servesim.__file__).parents[1]
HERE = sameness.digests()


def elsewhere(
    *, code: Path = CODE, script: Path = SCRIPT, cwd: Path | None = None, **variables: str
) -> dict[str, str]:
    """Return the digests that a process under other circumstances prints."""
    told = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(code), **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(told.stdout)
    return found


def test_a_second_run_in_the_same_process() -> None:
    assert sameness.digests() == HERE
    assert len(set(HERE.values())) > len(HERE) / 2  # they tell runs apart


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONHASHSEED": "0", "TZ": "Pacific/Kiritimati"},
        {"PYTHONHASHSEED": "4242", "LC_ALL": "tr_TR.UTF-8", "PYTHONUTF8": "0"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONOPTIMIZE": "2"},
    ],
    ids=lambda variables: " ".join(variables.values()),
)
def test_no_digit_depends_on_hashes_locale_or_time_zone(variables: dict[str, str]) -> None:
    assert elsewhere(**variables) == HERE


def test_no_digit_depends_on_where_it_runs(tmp_path: Path) -> None:
    """Neither on the folder it is started in nor on the one it lies in."""
    folder = tmp_path / "Ünï côdé 目 with spaces"
    shutil.copytree(CODE / "servesim", folder / "code" / "servesim")
    shutil.copy(SCRIPT, folder)
    found = elsewhere(
        code=folder / "code", script=folder / SCRIPT.name, cwd=folder, PYTHONDONTWRITEBYTECODE="1"
    )
    assert found == HERE
