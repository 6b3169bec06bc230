"""Random workloads, price lists and memory sizes, and every policy to run them with."""

import random

from hypothesis import strategies as st

import servesim as ss

# Short lengths and few requests: every queue, batch and pool situation comes up at this size.
MAX_PROMPT, MAX_OUTPUT = 60, 9

GAPS_NS = st.sampled_from([0, 0, 1, 999, 200_000, 3_000_000, 70_000_000, 2_000_000_000])


class OnDemand:
    """Takes blocks when they are needed and throws out the last to join when none is left."""

    def plan(self, view):
        plan, free, batch = ss.Plan(), view.free_blocks, list(view.running)
        while batch:
            r = batch.pop(0)
            need = view.blocks_needed(r, r.missing)
            while need > free and batch:
                victim = batch.pop()
                plan.preempted.append(victim.id)
                free += victim.blocks
            if need > free:
                plan.preempted.append(r.id)
                free += r.blocks
            else:
                plan.scheduled.append((r.id, r.missing))
                free -= need
        for r in [] if plan.preempted else view.waiting:
            need = view.blocks_needed(r, r.missing)
            if need > free:
                break
            plan.scheduled.append((r.id, r.missing))
            free -= need
        return plan


class Dice:
    """Does anything that is allowed: chunks, skips, preempts, reorders. Finishes by luck."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def __repr__(self):
        return "Dice()"

    def plan(self, view):
        plan, free, rng = ss.Plan(), view.free_blocks, self.rng
        keep = []
        for r in view.running:
            if rng.random() < 0.05:
                plan.preempted.append(r.id)
                free += r.blocks
            else:
                keep.append(r)
        queue = list(view.waiting)
        for r in rng.sample([*keep, *queue], len(keep) + len(queue)):
            tokens = rng.randint(1, r.missing)
            need = view.blocks_needed(r, tokens)
            if rng.random() < 0.7 and need <= free:
                free -= need
                plan.scheduled.append((r.id, tokens))
        if not plan.scheduled and not plan.preempted:
            if keep and not queue and view.more_to_come and rng.random() < 0.1:
                return ss.Plan(wait=True)
            # Somebody has to move: the oldest, alone, with the whole cache if need be.
            first = min([*keep, *queue], key=lambda r: r.id)
            plan.preempted = [r.id for r in keep if r is not first]
            plan.scheduled = [(first.id, first.missing)]
        scheduled = dict(plan.scheduled)
        if rng.random() < 0.3:
            plan.queue = [*plan.preempted, *(r.id for r in queue if r.id not in scheduled)]
            rng.shuffle(plan.queue)
        return plan


IN_ORDER = (
    ss.policies.Naive(),
    ss.policies.Static(1),
    ss.policies.Static(3),
    ss.policies.Static(),
    ss.policies.Continuous(),
    ss.policies.Continuous(max_running=2),
    ss.policies.Continuous(prefill_alone=True),
    ss.policies.Continuous(max_running=3, prefill_alone=True, wait_for_arrivals=True),
    ss.policies.Chunked(),
    ss.policies.Chunked(token_budget=8),
    ss.policies.Chunked(chunk=7),
    ss.policies.Chunked(token_budget=20, chunk=5, max_running=4),
)
"""The four first policies with their options: all of them first come, first served."""

ALL = (
    *IN_ORDER,
    *(cls() for cls in ss.policies.BUILT_IN.values()),
    ss.policies.Orca("pow2", max_len=80),
    ss.policies.Orca("max", max_len=80, max_running=3),
    ss.policies.PrefillFirst(token_budget=20, max_running=3),
    ss.policies.VLLM(max_num_batched_tokens=8, max_num_seqs=3),
    ss.policies.VLLM(
        max_num_batched_tokens=20, long_prefill_token_threshold=7, policy="priority", watermark=0.1
    ),
    ss.policies.VLLM(80, enable_chunked_prefill=False, release="0.11.2"),
    ss.policies.VLLM(16, policy="priority", release="0.11.2"),
    OnDemand(),
    Dice(1),
    Dice(2),
)

AFFINE = (
    ss.cost.OPT_13B_A100,
    ss.cost.TOY,
    ss.cost.TOY_STATIC,
    ss.cost.SLOTS,
    ss.cost.Affine(),
    ss.cost.Affine(prefill_us=40, decode_us=500),
    ss.cost.Affine(base_ms=1, context_ns=13, attention_ps=7),
)
PRICES = (*AFFINE, ss.cost.Roofline(), ss.cost.Roofline("opt-13b", "a100", gpus=2))

policies = st.sampled_from(ALL)
prices = st.sampled_from(PRICES)


@st.composite
def workloads(draw, max_size=14, prompt=MAX_PROMPT, output=MAX_OUTPUT):
    """Requests in order of arrival, many of them at the same instant; ids in any order."""
    n = draw(st.integers(1, max_size))
    ids = draw(st.permutations(range(n)))
    clock, requests = draw(GAPS_NS), []
    for rid in ids:
        lengths = draw(st.integers(1, prompt)), draw(st.integers(1, output))
        requests.append(ss.Request(rid, clock, *lengths, priority=draw(st.integers(-1, 1))))
        clock += draw(GAPS_NS)
    return requests


@st.composite
def caches(draw, requests, policy):
    """A KV cache, unlimited or from just large enough for the largest request upwards."""
    size = draw(st.sampled_from([1, 2, 16, 100]))
    if draw(st.booleans()):
        return ss.KVCache(block_size=size)
    predict = getattr(policy, "predict", lambda prompt, output: output)
    outputs = {r.id: max(r.output_len, predict(r.prompt_len, r.output_len)) for r in requests}
    tokens = max(r.prompt_len + outputs[r.id] - 1 for r in requests)
    blocks = -(-tokens // size)
    contiguous = getattr(policy, "reserve_all", False) and draw(st.booleans())
    if contiguous:
        blocks = 1 << (blocks - 1).bit_length()
    return ss.KVCache(blocks + draw(st.sampled_from([0, 1, 3, 50])), size, contiguous=contiguous)


@st.composite
def runs(draw, policies=policies, prices=prices):
    """Return requests, a policy and the options of a run that must end well."""
    requests, policy = draw(workloads()), draw(policies)
    return requests, policy, {"cost": draw(prices), "kv": draw(caches(requests, policy))}
