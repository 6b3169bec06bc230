"""List the rules of vLLM's scheduler that the tests break one by one, for the book.

`python -m tools.rules` writes `chapters/data/vllm_rules.json` from `tests/test_vllm_rules.py` and
the recordings in `tests/data`. A test compares.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests import vllm_traces

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "chapters" / "data" / "vllm_rules.json"
SOURCE = ROOT / "tests" / "test_vllm_rules.py"


def groups() -> dict[str, list[str]]:
    """Return the rules by the headings of their list."""
    text = SOURCE.read_text(encoding="utf-8")
    listed = text[text.index("RULES = [") : text.index("\n]\n")]
    found: dict[str, list[str]] = {}
    pattern = r'# --- (?:\d+\. )?(?P<group>.+)|Mutation\(\s*"(?P<rule>[^"]+)"'
    for match in re.finditer(pattern, listed):
        if match["group"]:
            found[match["group"]] = []
        else:
            found[next(reversed(found))].append(match["rule"])
    return found


def recordings() -> dict[str, int]:
    """Count what the tests replay from this repository."""
    traces = [trace for name in vllm_traces.FILES for trace in vllm_traces.load(name)]
    return {
        "traces": len(traces),
        "steps": sum(len(trace["steps"]) for trace in traces),
        "preemptions": sum(len(step["p"]) for trace in traces for step in trace["steps"]),
    }


def report() -> dict[str, Any]:
    """Return what the file holds."""
    return {"rules": groups(), "recordings": recordings()}


if __name__ == "__main__":
    OUT.write_text(json.dumps(report(), indent=1) + "\n", encoding="utf-8")
    print(f"{OUT.relative_to(ROOT)} written")
