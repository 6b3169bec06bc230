"""The plainest simulator of vLLM's first-come scheduler: every step, every request, one by one.

An independent reference for the engine (it imports nothing of it), and what the benchmark compares
its speed with. Chunked prefill, one token budget, blocks on demand, preemption of the last,
admission only of prompts that would fit whole; prices base + prefill + decode + context.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
