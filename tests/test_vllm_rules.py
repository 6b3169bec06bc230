"""Every rule of vLLM's scheduler matters: break one in a copy, and a trace shows it.

The table lists the rules and, for each, what was changed in a copy of the source. A test finds
a recorded trace that comes out differently; a change that no trace shows would be a rule that
nothing checks. For eight rules we made a small trace ourselves (`MADE`).
"""

import importlib
import sys
import types
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import servesim
from servesim import InputError, PlanError, PolicyError, replay
from tests.vllm_traces import FILES, differs, load

MODULES = {
    "vllm": "servesim.policies.vllm",
    "draft": "servesim.policies.draft",
    "replay": "servesim.replay",
}
"""What can be mutated, in order of import."""


class Mutation(NamedTuple):
    """One rule, and a change that breaks it: in `module`, `old` becomes `new`."""

    rule: str
    module: str
    old: str
    new: str


RULES = [
    # --- 1. the pool
    Mutation("block 0 is a null block that nobody gets", "replay", "null_block=True", ""),
    # --- 2. order and budget
    Mutation(
        "the running come before the waiting",
        "vllm",
        """        if step.size:
            self.serve_running(step, limit, rules)
        if view.waiting and not step.preempted:
            self.admit_waiting(step, limit, rules)
""",
        """        self.admit_waiting(step, limit, rules)
        self.serve_running(step, limit, rules)
""",
    ),
    Mutation(
        "the running are served in list order",
        "draft",
        "self.turns = list(batch.prefilling if self.decode_all else batch)",
        "self.turns = list(batch.prefilling if self.decode_all else batch)[::-1]",
    ),
    Mutation(
        "the budget limits the tokens of a running request",
        "vllm",
        "tokens = min(r.missing, limit or r.missing, step.budget)",
        "tokens = min(r.missing, limit or r.missing)",
    ),
    Mutation(
        "running and waiting share one token budget",
        "vllm",
        "            self.admit_waiting(step, limit, rules)\n",
        "            step.budget = self.max_num_batched_tokens\n"
        "            self.admit_waiting(step, limit, rules)\n",
    ),
    # --- 3. running: chunks and blocks
    Mutation(
        "the threshold cuts a running request",
        "vllm",
        "tokens = min(r.missing, limit or r.missing, step.budget)",
        "tokens = min(r.missing, step.budget)",
    ),
    Mutation(
        "blocks are bought for the chunk only, not for the whole prompt",
        "vllm",
        "step.view.blocks_needed(r, tokens) > step.free:",
        "step.view.blocks_needed(r, r.missing) > step.free:",
    ),
    Mutation(
        "the sampled token gets its place one step later",
        "vllm",
        "step.view.blocks_needed(r, tokens) > step.free:",
        "step.view.blocks_needed(r, tokens + (tokens == r.missing)) > step.free:",
    ),
    # --- 4. preemption
    Mutation(
        "first come, first served: the last of the running is preempted",
        "vllm",
        "return step.turns[-1]",
        "return step.turns[0]",
    ),
    Mutation(
        "it may be the one that asks",
        "vllm",
        "return step.turns[-1]",
        "return step.turns[max(-2, -len(step.turns))]",
    ),
    Mutation(
        "by priority: the largest priority number is preempted",
        "vllm",
        "max(step.turns, key=lambda r: (r.priority, r.arrival_ns))",
        "max(step.turns, key=lambda r: (-r.priority, r.arrival_ns))",
    ),
    Mutation(
        "by priority: of equal ones the latest to arrive",
        "vllm",
        "max(step.turns, key=lambda r: (r.priority, r.arrival_ns))",
        "max(step.turns, key=lambda r: r.priority)",
    ),
    Mutation(
        "by priority: of those the first in running order",
        "vllm",
        "max(step.turns, key",
        "max(reversed(step.turns), key",
    ),
    Mutation(
        "tokens that the victim had in this step go back to the budget",
        "draft",
        "            self.budget += tokens\n",
        "",
    ),
    Mutation(
        "blocks that the victim had bought in this step come back too",
        "draft",
        "            self.free += self.view.blocks_needed(r, tokens)\n",
        "",
    ),
    Mutation(
        "a victim that stands earlier moves the cursor back by one",
        "draft",
        "self.cursor -= index < self.cursor",
        "pass",
    ),
    Mutation(
        "the victim's own blocks are freed at once",
        "draft",
        "self.free += r.blocks",
        "pass",
    ),
    Mutation(
        "the victim keeps the tokens it produced",
        "draft",
        "self.preempted.append(r)",
        "self.preempted.append(r)\n        object.__setattr__(r, 'produced', 0)",
    ),
    Mutation(
        "the victim goes to the head of the queue",
        "vllm",
        "            return None\n        stay = [r for r in step.view.waiting",
        "            return [r.id for r in step.view.waiting if r.id not in step.tokens] + "
        "[r.id for r in step.preempted]\n        stay = [r for r in step.view.waiting",
    ),
    Mutation(
        "of several victims the one preempted last comes first",
        "vllm",
        "            return None\n        stay = [r for r in step.view.waiting",
        "            return [r.id for r in step.preempted] + "
        "[r.id for r in step.view.waiting if r.id not in step.tokens]"
        "\n        stay = [r for r in step.view.waiting",
    ),
    Mutation(
        "by priority: the victim goes to its place in the queue",
        "vllm",
        "return [r.id for r in self.in_order([*stay, *step.preempted])]",
        "return [r.id for r in [*step.preempted, *self.in_order(stay)]]",
    ),
    Mutation(
        "preempt until it fits, not once",
        "vllm",
        "while victim is not r and",
        "if victim is not r and",
    ),
    # --- 5. no admission after a preemption
    Mutation(
        "no admission in a step that preempted somebody",
        "vllm",
        "if view.waiting and not step.preempted:",
        "if view.waiting:",
    ),
    # --- 6. admission
    Mutation(
        "at most max_num_seqs run",
        "vllm",
        "or step.size >= self.max_num_seqs",
        "",
    ),
    Mutation(
        "those admitted in this step count against max_num_seqs",
        "vllm",
        "or step.size >= self.max_num_seqs",
        "or len(step.view.running) >= self.max_num_seqs",
    ),
    Mutation(
        "the threshold cuts an admitted prompt",
        "vllm",
        "tokens = min(r.missing, limit) if limit else r.missing\n",
        "tokens = r.missing\n",
    ),
    Mutation(
        "the budget cuts an admitted prompt",
        "vllm",
        "            tokens = min(tokens, step.budget)\n",
        "            if tokens > step.budget:\n                return None\n",
    ),
    Mutation(
        "the first that lacks blocks ends the scan: nobody is skipped",
        "vllm",
        '                return step.hold(r, f"needs {so_many(need)}, {step.free} free")\n',
        "                continue\n",
    ),
    Mutation(
        "admission needs the chunk's blocks",
        "vllm",
        "            need = step.view.blocks_needed(r, tokens)\n",
        "            need = 0\n",
    ),
    Mutation(
        "0.33.0: admission needs room for the whole prompt",
        "vllm",
        "whole = r.total if self.scheduler_reserve_full_isl else tokens",
        "whole = tokens",
    ),
    Mutation(
        "0.33.0: unless scheduler_reserve_full_isl is off",
        "vllm",
        "whole = r.total if self.scheduler_reserve_full_isl else tokens",
        "whole = r.total",
    ),
    Mutation(
        "0.33.0: the whole prompt includes the outputs that were kept",
        "vllm",
        "whole = r.total if",
        "whole = r.prompt_len if",
    ),
    Mutation(
        "0.33.0: the whole prompt is looked for, not reserved",
        "vllm",
        "            step.schedule(r, tokens)\n            step.size += 1\n",
        "            step.schedule(r, tokens)\n            step.size += 1\n"
        "            step.free -= need - step.view.blocks_needed(r, tokens)\n",
    ),
    Mutation(
        "0.11.2: admission needs the chunk's blocks only",
        "vllm",
        "Release(False, False, False, True)",
        "Release(True, False, False, True)",
    ),
    Mutation(
        "0.33.0: an admission leaves the watermark free",
        "vllm",
        "if step.size else 0",
        "if False else 0",
    ),
    Mutation(
        "the watermark does not apply when nothing runs",
        "vllm",
        " if step.size else 0",
        "",
    ),
    Mutation(
        "those admitted in this very step count as running",
        "vllm",
        "if step.size else 0",
        "if step.view.running else 0",
    ),
    Mutation(
        "the watermark is a share of all blocks, rounded down",
        "vllm",
        "int(self.watermark * step.view.total_blocks)",
        "-int(-self.watermark * step.view.total_blocks // 1)",
    ),
    Mutation(
        "the watermark comes on top of the chunk's blocks too",
        "vllm",
        "if step.size else 0",
        "if step.size and self.scheduler_reserve_full_isl else 0",
    ),
    Mutation(
        "the watermark never applies to running requests",
        "vllm",
        "step.view.blocks_needed(r, tokens) > step.free:",
        "step.view.blocks_needed(r, tokens) "
        "+ int(self.watermark * step.view.total_blocks) > step.free:",
    ),
    Mutation(
        "admitted requests join at the end",
        "draft",
        "Plan(list(self.tokens.items())",
        "Plan(sorted(self.tokens.items())",
    ),
    # --- 7. tokens and finishes
    Mutation(
        "a request ends at max_model_len",
        "replay",
        '"max_model_len": asked["max_model_len"]',
        '"max_model_len": None',
    ),
    Mutation(
        "blocks of the finished are free for the next step, not for this one",
        "draft",
        "        self.tokens[r.id] = tokens\n",
        "        self.tokens[r.id] = tokens\n"
        "        if r.missing == tokens and r.produced + 1 == r.predicted_output:\n"
        "            self.free += r.blocks + self.view.blocks_needed(r, tokens)\n",
    ),
    # --- 8. chunking off
    Mutation(
        "chunking off: a prompt runs whole or not at all",
        "vllm",
        "if tokens > step.budget and not self.enable_chunked_prefill:",
        "if False:",
    ),
    Mutation(
        "0.33.0, chunking off: stop at the first prompt above what is left of the budget",
        "vllm",
        "Release(True, True, True, False)",
        "Release(True, True, True, True)",
    ),
    Mutation(
        "0.11.2, chunking off: look past it",
        "vllm",
        "                if rules.looks_past_long_prompts:\n",
        "                if False:\n",
    ),
    Mutation(
        "0.11.2, chunking off: those looked past go to the head of the queue",
        "vllm",
        "return [*skipped, *(r.id for r in stay if r.id not in skipped)]",
        "return [*(r.id for r in stay if r.id not in skipped), *skipped]",
    ),
    Mutation(
        "0.11.2, chunking off: in reversed order (a quirk)",
        "vllm",
        "for r in reversed(step.skipped)",
        "for r in step.skipped",
    ),
    Mutation(
        "0.11.2, chunking off: the threshold is ignored",
        "vllm",
        "limit = 0 if alone or whole_only else",
        "limit = 0 if alone else",
    ),
    # --- 9. releases
    Mutation(
        "0.33.0: the threshold does not cut a request that is alone",
        "vllm",
        "limit = 0 if alone or whole_only else",
        "limit = 0 if whole_only else",
    ),
    Mutation(
        "0.33.0: alone means that nobody waits either",
        "vllm",
        "step.size + len(view.waiting) == 1",
        "max(step.size, len(view.waiting)) == 1",
    ),
    Mutation(
        "0.11.2: the threshold cuts one that is alone",
        "vllm",
        "Release(False, False, False, True)",
        "Release(False, True, False, True)",
    ),
    Mutation(
        "0.33.0, by priority: one that preempts itself does not end the scan",
        "vllm",
        "Release(True, True, True, False)",
        "Release(True, True, False, False)",
    ),
    Mutation(
        "0.11.2, by priority: it does",
        "vllm",
        "Release(False, False, False, True)",
        "Release(False, False, True, True)",
    ),
    Mutation(
        "by priority: the queue is in order of priority",
        "vllm",
        "(r.priority, r.arrival_ns, str(r.id))",
        "(r.arrival_ns, str(r.id))",
    ),
    Mutation(
        "by priority: of equal ones the first to arrive",
        "vllm",
        "(r.priority, r.arrival_ns, str(r.id))",
        "(r.priority, str(r.id))",
    ),
    Mutation(
        "by priority: then the id as text",
        "vllm",
        "(r.priority, r.arrival_ns, str(r.id))",
        "(r.priority, r.arrival_ns, r.id)",
    ),
    # --- how a trace is run
    Mutation(
        "requests are added in order of arrival, then of the file",
        "replay",
        "key=lambda r: r.arrival_ns",
        "key=lambda r: (r.arrival_ns, -r.id)",
    ),
    Mutation(
        "arrivals by step are steps",
        "replay",
        '"arrivals_by_step": by_step',
        '"arrivals_by_step": False',
    ),
    Mutation(
        "a run is stalled after three empty steps",
        "replay",
        '"stall_steps": asked["stall_steps"]',
        '"stall_steps": 2',
    ),
    Mutation(
        "a run is cut at max_steps",
        "replay",
        '"max_steps": asked["max_steps"]',
        '"max_steps": asked["max_steps"] - 1',
    ),
]

# Without these the trace would not show the rule: a setting that the live scheduler had changed.
ASKED = "0.11.2, chunking off: the threshold is ignored"
# And here the mutant has to know when a request ends.
TOLD = "blocks of the finished are free for the next step, not for this one"


# And here those that decode must not be served together, where the last goes first by itself.
ONE_BY_ONE = (
    "first come, first served: the last of the running is preempted",
    "it may be the one that asks",
)


def mutant(mutation, monkeypatch):
    """Return a copy of `servesim.replay` that runs a copy of the policy with one change."""
    sources = {}
    for name, module in MODULES.items():
        file = importlib.import_module(module).__file__
        sources[name] = Path(file).read_text(encoding="utf-8")
    assert sources[mutation.module].count(mutation.old) == 1, f"not once: {mutation.old!r}"
    sources[mutation.module] = sources[mutation.module].replace(mutation.old, mutation.new)
    if mutation.rule in ONE_BY_ONE:
        together = 'last_goes_first=self.policy == "fcfs"'
        assert sources["vllm"].count(together) == 1
        sources["vllm"] = sources["vllm"].replace(together, "last_goes_first=False")
    draft = build("draft", sources["draft"], monkeypatch)
    policy = build("vllm", sources["vllm"], monkeypatch)
    copy = build("replay", sources["replay"], monkeypatch)
    policy.Draft = draft.Draft
    policy.VLLM.knows_output_length = mutation.rule == TOLD
    copy.VLLM, copy.RELEASES = policy.VLLM, policy.RELEASES
    return copy


def build(name, source, monkeypatch):
    """Run the source of a module under another name."""
    original = MODULES[name]
    module = types.ModuleType(f"{original}_mutant")
    module.__package__ = original.rpartition(".")[0]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, f"<mutant of {original}>", "exec"), module.__dict__)
    return module


def made(version, requests, expected, **config):
    """Return a trace that we made: settings, and ``(s, p)`` of its first steps by hand."""
    config = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 8,
        "num_gpu_blocks": 9,
        "block_size": 1,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "policy": "priority",
        "max_model_len": 65536,
        "scheduler_reserve_full_isl": False,
        "watermark": 0.0,
        "cost_prefill_us": 40,
        "cost_decode_us": 500,
        "cost_base_us": 200,
        "max_steps": 100,
        "stall_steps": 3,
        **config,
    }
    return {
        "vllm_version": version,
        "config": config,
        "effective": {},
        "arrivals": "arrival_us",
        "requests": requests,
        "expected": [{"s": s, "p": p} for s, p in expected],
    }


# Rules that no recorded trace here shows: a small workload each, its steps worked out by hand.
# A request is [id, arrival (us), prompt, output, priority].
MADE = {
    # Both are equal; 10 stands first, so it goes although it already had its token.
    "by priority: of those the first in running order": made(
        "0.33.0",
        [[10, 300, 3, 2, 0], [11, 300, 1, 2, 0]],
        [([[10, 3, 1], [11, 1, 1]], []), ([[11, 1, 1]], [10])],
        num_gpu_blocks=6,
    ),
    # In step 3 request 1 has had 1 of 6 tokens when 11 needs a block and throws it out. 11 takes
    # 3, and 12 gets 3 as well: 2 if that token were lost.
    "tokens that the victim had in this step go back to the budget": made(
        "0.33.0",
        [[1, 500, 4, 6, 4], [11, 1500, 14, 1, 1], [12, 900, 9, 4, 3]],
        [
            ([[1, 4, 1]], []),
            ([[1, 1, 1]], []),
            ([[1, 1, 1], [11, 3, 0], [12, 2, 0]], []),
            ([[11, 3, 0], [12, 3, 0]], [1]),
        ],
        max_num_batched_tokens=6,
        num_gpu_blocks=8,
        block_size=2,
        long_prefill_token_threshold=3,
    ),
    # In step 4 requests 1 and 3 have bought the last two blocks when 0 needs three: 3 gives
    # its two and the one it has just bought. Without that one, 1 would have to go as well.
    "blocks that the victim had bought in this step come back too": made(
        "0.33.0",
        [[0, 1500, 11, 7, 2], [1, 0, 5, 5, 3], [3, 900, 3, 5, 3]],
        [
            ([[1, 5, 1]], []),
            ([[1, 1, 1]], []),
            ([[1, 1, 1], [3, 3, 1]], []),
            ([[1, 1, 1], [3, 1, 1], [0, 6, 0]], []),
            ([[1, 1, 1], [0, 5, 1]], [3]),
        ],
        num_gpu_blocks=12,
        block_size=2,
    ),
    # In step 5 request 12 needs two blocks and 2 gives only one: then 12 goes itself.
    "preempt until it fits, not once": made(
        "0.11.2",
        [[1, 0, 14, 3, 0], [2, 500, 4, 1, 0], [12, 0, 13, 7, 0]],
        [
            ([[1, 4, 0], [12, 2, 0]], []),
            ([[1, 4, 0], [12, 2, 0]], []),
            ([[1, 4, 0], [12, 2, 0]], []),
            ([[1, 2, 1]], [12]),
            ([[1, 1, 1], [12, 4, 0], [2, 1, 0]], []),
            ([[1, 1, 1]], [2, 12]),
        ],
        policy="fcfs",
        max_num_batched_tokens=6,
        num_gpu_blocks=12,
        block_size=2,
        long_prefill_token_threshold=4,
    ),
    # 3 usable blocks, all of them needed; a watermark of 1 would keep it out for ever.
    "the watermark does not apply when nothing runs": made(
        "0.33.0",
        [[11, 0, 5, 1, 0]],
        [([[11, 5, 1]], [])],
        num_gpu_blocks=4,
        block_size=2,
        watermark=0.3,
    ),
    # 4 usable: 0 takes 3, 1 would get the token that is left of the budget, but 1 must stay free.
    "those admitted in this very step count as running": made(
        "0.33.0",
        [[0, 300, 3, 2, 0], [1, 300, 3, 1, 2]],
        [([[0, 3, 1]], []), ([[0, 1, 1]], []), ([[1, 3, 1]], [])],
        max_num_batched_tokens=4,
        num_gpu_blocks=5,
        watermark=0.3,
    ),
    # 8 usable: 12 takes 1, then 2 would get 7 tokens in 7 blocks, but 1 must stay free.
    "the watermark comes on top of the chunk's blocks too": made(
        "0.33.0",
        [[2, 0, 8, 1, 1], [12, 0, 1, 1, 0]],
        [([[12, 1, 1]], []), ([[2, 8, 1]], [])],
        watermark=0.2,
    ),
    # "11" comes before "2".
    "by priority: then the id as text": made(
        "0.33.0",
        [[2, 0, 1, 1, 0], [11, 0, 2, 2, 0]],
        [([[11, 2, 1], [2, 1, 1]], []), ([[11, 1, 1]], [])],
    ),
}


def as_expected(trace, module):
    steps = module.steps(module.replay(trace, module.VLLM))
    first = [{"s": step["s"], "p": step["p"]} for step in steps[: len(trace["expected"])]]
    return first == trace["expected"]


@pytest.mark.parametrize("rule", MADE)
def test_the_policy_does_what_was_worked_out_by_hand(rule):
    assert as_expected(MADE[rule], replay)


def traces(mutation):
    """Yield every trace with its name, the short ones first."""
    for name, i, trace in every_trace():
        if mutation.rule == ASKED:
            threshold = trace["config"]["long_prefill_token_threshold"]
            effective = {**trace["effective"], "long_prefill_token_threshold": threshold}
            trace = {**trace, "effective": effective}
        yield f"{name}, trace {i}", trace


@cache
def every_trace():
    every = [(name, i, trace) for name in FILES for i, trace in enumerate(load(name))]
    return sorted(every, key=lambda item: len(item[2]["steps"]))


def caught(module, mutation):
    """Return the first trace that a mutant does not reproduce, or None."""
    if mutation.rule in MADE:
        try:
            return None if as_expected(MADE[mutation.rule], module) else "a made trace"
        except PlanError:
            return "a made trace"  # the audit stopped it
    for name, trace in traces(mutation):
        try:
            if differs(trace, module):
                return name
        except (InputError, PlanError, PolicyError):
            return name  # the audit stopped it
    return None


@pytest.mark.parametrize("mutation", RULES, ids=lambda m: m.rule)
def test_breaking_a_rule_shows_in_a_trace(mutation, monkeypatch):
    assert caught(mutant(mutation, monkeypatch), mutation), "no trace shows it"


@pytest.mark.parametrize(
    "rule",
    [
        "nothing is changed",
        pytest.param(ASKED, marks=pytest.mark.long),
        pytest.param(TOLD, marks=pytest.mark.long),
    ],
)
def test_an_unchanged_copy_reproduces_every_trace(rule, monkeypatch):
    nothing = Mutation(rule, "vllm", "class VLLM(Policy):", "class VLLM(Policy):")
    assert caught(mutant(nothing, monkeypatch), nothing) is None


def test_a_policy_s_file_has_at_most_150_lines():
    for file in Path(servesim.policies.__file__).parent.glob("*.py"):
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 150, file.name


def test_no_policy_knows_the_trace_format():
    for file in Path(servesim.policies.__file__).parent.glob("*.py"):
        source = file.read_text(encoding="utf-8")
        for word in (replay.FORMAT, "sched-trace", "per_request", "arrival_us", "json", "replay"):
            assert word not in source, f"{file.name} mentions {word}"
