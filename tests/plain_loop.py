"""Plain loops: every step, every request, one by one. Independent references for the engine.

`run` is the plainest simulator of vLLM's first-come scheduler; it imports nothing of ours, and the
benchmark compares the engine's speed with it. `step_by_step` carries out the plans of any policy.
`run` has chunked prefill, one token budget, blocks on demand, preemption of the last,
admission only of prompts that would fit whole; prices base + prefill + decode + context.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import servesim as ss
from servesim.cost import Work
from servesim.kv import UNLIMITED


@dataclass
class Job:
    id: int
    arrival: int
    prompt: int
    output: int
    computed: int = 0
    produced: int = 0
    blocks: int = 0
    times: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Prices:
    """In nanoseconds."""

    base: int
    prefill: int
    decode: int
    decode_step: int = 0
    context: int = 0


def run(requests, prices, blocks, block_size=16, budget=2048, places=256):
    """Return the token times of each request, by id, and the number of steps."""
    todo = [Job(r.id, r.arrival_ns, r.prompt_len, r.output_len) for r in requests]
    jobs = {job.id: job for job in todo}
    todo.reverse()
    waiting: list[Job] = []
    running: list[Job] = []
    clock = steps = 0
    free = blocks
    while todo or waiting or running:
        if not waiting and not running:
            clock = max(clock, todo[-1].arrival)
        while todo and todo[-1].arrival <= clock:
            waiting.append(todo.pop())

        left, scheduled, preempted = budget, [], False
        i = 0
        while i < len(running) and left:
            job = running[i]
            tokens = min(job.prompt + job.produced - job.computed, left)
            need = -(-(job.computed + tokens) // block_size) - job.blocks
            while need > free and running:
                victim = running.pop()
                preempted = True
                free += victim.blocks
                victim.blocks = victim.computed = 0
                waiting.insert(0, victim)
                if victim is job:
                    break
            else:
                job.blocks += need
                free -= need
                left -= tokens
                scheduled.append((job, tokens))
                i += 1
        while not preempted and waiting and left and len(running) < places:
            job = waiting[0]
            total = job.prompt + job.produced
            if -(-total // block_size) > free:
                break
            tokens = min(total, left)
            job.blocks = -(-tokens // block_size)
            free -= job.blocks
            left -= tokens
            running.append(waiting.pop(0))
            scheduled.append((job, tokens))

        prefill = decodes = context = 0
        for job, tokens in scheduled:
            if job.produced and job.prompt + job.produced - job.computed == 1:
                decodes += 1
                context += job.computed + 1
            else:
                prefill += tokens
        clock += prices.base + prices.prefill * prefill
        clock += prices.decode * decodes + prices.context * context
        clock += prices.decode_step if decodes else 0
        for job, tokens in scheduled:
            job.computed += tokens
            if job.computed == job.prompt + job.produced:
                job.produced += 1
                job.times.append(clock)
        for job in [job for job in running if job.produced == job.output]:
            running.remove(job)
            free += job.blocks
        steps += 1
    return {rid: job.times for rid, job in jobs.items()}, steps


def step_by_step(requests, policy, cost, kv):
    """Carry out any policy's plans one step at a time, with lists, dicts and the plain rules only.

    What it takes from the simulator is what is not under test here: the view that a policy is
    shown, made of plain lists, and the price of a step. Paging only.

    Returns
    -------
    dict of int to list of int
        Token times by request, those turned away included.
    dict
        Totals: steps, preemptions, the end, blocks at the peak, and integrals over time.
    """
    policy = copy.deepcopy(policy)
    reserves = getattr(policy, "reserve_all", False)
    told = getattr(policy, "knows_output_length", False)
    predict = getattr(policy, "predict", lambda prompt, output: output)
    size, usable = kv.block_size, kv.usable
    todo, waiting, running = list(requests), [], []
    jobs = {r.id: Job(r.id, r.arrival_ns, r.prompt_len, r.output_len) for r in requests}
    asked = {r.id: r for r in requests}
    predicted = {r.id: predict(r.prompt_len, r.output_len) for r in requests} if told else {}
    thrown_out = dict.fromkeys(jobs, 0)
    clock, free = todo[0].arrival_ns, usable
    totals = dict.fromkeys(("steps", "preemptions", "peak", "block_ns", "running_ns"), 0)

    def seen(rid):
        job, r = jobs[rid], asked[rid]
        return ss.Progress(
            *(rid, job.arrival, job.prompt, r.priority, r.tenant, job.computed, job.produced),
            *(job.blocks, thrown_out[rid], predicted.get(rid)),
        )

    def pass_time(ns):
        totals["block_ns"] += ns * (usable - free)
        totals["running_ns"] += ns * len(running)
        return clock + ns

    while todo or waiting or running:
        if not waiting and not running:
            clock = max(clock, todo[0].arrival_ns)
        while todo and todo[0].arrival_ns <= clock:
            waiting.append(todo.pop(0).id)
        batch, queue = [*map(seen, running)], [*map(seen, waiting)]
        blocks = (free, kv.blocks or UNLIMITED, size)
        view = ss.View(clock, totals["steps"], queue, batch, *blocks, reserves, bool(todo))
        plan = policy.plan(view)
        if plan.wait:
            clock = pass_time(max(0, todo[0].arrival_ns - clock))
            continue
        waiting = [rid for rid in waiting if rid not in plan.rejected]
        everybody = [r.id for r in batch if r.decoding and r.id not in plan.preempted]
        scheduled = [(rid, 1) for rid in everybody if plan.decode_all] + list(plan.scheduled)
        if plan.rejected and not scheduled and not plan.preempted:
            continue  # nothing is computed
        for rid in plan.preempted:
            job = jobs[rid]
            free += job.blocks
            job.blocks = job.computed = 0
            thrown_out[rid] += 1
            totals["preemptions"] += 1
            running.remove(rid)
            waiting.insert(0, rid)
        prefill = decodes = context = pairs = longest = 0
        for rid, tokens in scheduled:
            job = jobs[rid]
            holds = job.computed + tokens
            if reserves:
                holds = max(holds, job.prompt + predicted[rid] - 1)
            if rid in waiting:
                waiting.remove(rid)
                running.append(rid)
            need = max(0, -(-holds // size) - job.blocks)
            job.blocks += need
            free -= need
            assert free >= 0
            if job.produced and job.prompt + job.produced - job.computed == 1:
                decodes += 1
                context += job.computed + 1
            else:
                padded = max(tokens, plan.padded_prompt)
                prefill += padded
                longest = max(longest, padded)
                pairs += padded * (padded + 2 * job.computed)
        if plan.queue is not None:
            assert sorted(plan.queue) == sorted(waiting)
            waiting = list(plan.queue)
        totals["peak"] = max(totals["peak"], usable - free)
        work = Work(prefill, decodes + plan.idle_slots, context, pairs, longest)
        clock = pass_time(cost.price_ns(work))
        totals["steps"] += 1
        for rid, tokens in scheduled:
            job = jobs[rid]
            job.computed += tokens
            if job.computed == job.prompt + job.produced:
                job.produced += 1
                job.times.append(clock)
                if job.produced == job.output:
                    running.remove(rid)
                    free += job.blocks
    return {rid: job.times for rid, job in jobs.items()}, {**totals, "end": clock}
