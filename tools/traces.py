"""Summarize the real traces: `python -m tools.traces FOLDER` writes `chapters/data/traces.json`.

The folder holds the files as published: Azure's two of 2023 and Mooncake's synthetic one. The
book's build needs the summary only, so that it depends on no download. The test
`tests/test_validation.py` makes a part of it anew wherever the files are at hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import servesim as ss
from servesim import evidence, studies, workload

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "chapters" / "data" / "traces.json"


def read(folder: Path, name: str) -> list[ss.Request]:
    """Return the requests of a trace, as the studies take them: of some, every second."""
    file, every, _ = studies.TRACES[name]
    return workload.load(folder / file)[::every]


def summary(requests: list[ss.Request], name: str) -> dict[str, Any]:
    """Return what a trace is like, and what each policy made of it."""
    runs = {repr(p): studies.latencies(requests, p, name) for p in studies.TRACE_POLICIES}
    return {**evidence.describe(requests), "runs": runs}


def rounded(value: Any) -> Any:
    """Round to five significant digits: enough, and equal on every machine."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main(folder: Path) -> None:
    """Write the summary of all traces."""
    report = {name: rounded(summary(read(folder, name), name)) for name in studies.TRACES}
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{OUT.relative_to(ROOT)} written")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.traces FOLDER, the folder of the trace files")
    main(Path(sys.argv[1]))
