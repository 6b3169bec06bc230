"""The recorded traces of vLLM's scheduler, and what replaying one must give."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from servesim import replay
from servesim.request import NS_PER_US

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "tests" / "data" / "vllm_traces"
SHARED = ROOT.parent / "shared" / "reference" / "vllm_traces"
FILES = sorted(path.name for path in HERE.glob("*.gz"))
AZURE = [
    f"{name}.{variant}.json.gz"
    for name, variants in (
        ("w19_azure_conv", ("v0.11.2", "v0.33.0", "v0.33.0-noisl")),
        ("w20_azure_conv_tight", ("v0.11.2", "v0.33.0", "v0.33.0-noisl", "v0.33.0-wm5")),
    )
    for variant in variants
]


def find(name):
    """Return the path of a trace file, or skip the test."""
    for folder in (HERE, SHARED):
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"{name} holds Azure's data and is not in this repository")


@cache
def load(name):
    """Return the traces in a file, read without the code that is tested."""
    text = gzip.decompress(find(name).read_bytes()).decode()
    return [json.loads(part) for part in (text.splitlines() if ".jsonl" in name else [text])]


def per_request(result):
    """Return the run's requests as the trace format writes them, in order of id."""
    rows = []
    for r in sorted(result.records, key=lambda r: r.request.id):
        times = [r.first_scheduled_ns, r.first_token_ns]
        times.append(r.last_token_ns if r.status == "finished" else None)
        us = [None if t is None else t // NS_PER_US for t in times]
        rows.append([r.request.id, *us, r.preemptions])
    return rows


def unfinished(result):
    return sorted(r.request.id for r in result.records if r.status == "unfinished")


def through_json(data):
    return json.loads(json.dumps(data))


def differs(trace, module=replay):
    """Say whether a replay gives other steps or another outcome than the trace."""
    blind = {k: v for k, v in trace.items() if k != "steps"}
    result = module.replay(blind, module.VLLM)
    return (through_json(module.steps(result)), result.outcome) != (
        trace["steps"],
        trace["outcome"],
    )
