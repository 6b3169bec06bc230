"""vLLM's V1 scheduler: one token budget, running before waiting, paging, preemption.

Options have vLLM's names. Left out: prefix caching, async scheduling, speculation, LoRA, images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..checks import by_annotation, one_of, share, whole_from
from ..kv import blocks_for, so_many
from ..plan import Plan, View
from ..request import Progress
from .base import Policy
from .draft import Draft


@dataclass(frozen=True, slots=True)
class Release:
    """Everything in which two releases differ."""

    full_prompt_check: bool  # admission asks for room for the whole prompt, and for a watermark
    spares_lone_request: bool  # the long-prefill threshold does not cut a request that is alone
    goes_on_after_itself: bool  # by priority: one that preempts itself does not end the scan
    looks_past_long_prompts: bool  # chunking off: tries those behind a prompt over the budget,
    # puts the skipped ones back in reversed order (a quirk), and knows no long-prefill threshold


RELEASES = {
    "0.11.2": Release(False, False, False, True),
    "0.33.0": Release(True, True, True, False),
}


@dataclass(repr=False)
class VLLM(Policy):
    """Give running requests their tokens first, then admit what budget and KV cache allow.

    KV blocks are bought on demand. If there are none for a running request, another is preempted:
    its blocks are freed, and its tokens will be computed again.

    Parameters
    ----------
    max_num_batched_tokens, max_num_seqs : int
        Token budget of a step, and places in the batch (defaults: vLLM's, serving on an A100).
    long_prefill_token_threshold : int
        Most tokens of one request in a step; 0 for no such limit.
    enable_chunked_prefill : bool
        False: a prompt runs whole or not at all.
    policy : {"fcfs", "priority"}
        Order of the queue, and who is preempted: the last to join, or the least urgent.
    scheduler_reserve_full_isl : bool
        Admit a request only if its whole prompt would fit now (0.33.0).
    watermark : float
        Share of the KV cache that an admission must leave free while others run (0.33.0).
    release : {"0.33.0", "0.11.2"}
    """

    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    policy: str = "fcfs"
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    release: str = "0.33.0"

    def __post_init__(self) -> None:
        whole_from(1, **{k: v for k, v in vars(self).items() if k.startswith("max_num")})
        one_of(("fcfs", "priority"), policy=self.policy)
        one_of(tuple(RELEASES), release=self.release)
        share(watermark=self.watermark)
        by_annotation(self)

    def plan(self, view: View) -> Plan:
        """Serve those who run; admit newcomers only if nobody had to be preempted."""
        step, rules = Draft(view, self.max_num_batched_tokens), RELEASES[self.release]
        alone = rules.spares_lone_request and step.size + len(view.waiting) == 1
        whole_only = rules.looks_past_long_prompts and not self.enable_chunked_prefill
        limit = 0 if alone or whole_only else self.long_prefill_token_threshold
        if step.size:
            self.serve_running(step, limit, rules)
        if view.waiting and not step.preempted:
            self.admit_waiting(step, limit, rules)
        return step.plan(self.new_queue(step), type(self).plan is VLLM.plan)

    def serve_running(self, step: Draft, limit: int, rules: Release) -> None:
        """Go through the batch in order; preempt until there are blocks for each one's tokens."""
        step.begin(last_goes_first=self.policy == "fcfs" and type(self).victim is VLLM.victim)
        while step.cursor < len(step.turns) and step.budget:
            r = step.turns[step.cursor]
            tokens = min(r.missing, limit or r.missing, step.budget)
            victim = None
            while victim is not r and step.view.blocks_needed(r, tokens) > step.free:
                victim = self.victim(step)
                step.preempt(victim, step.shortage(r, tokens))
            if victim is not r:
                step.schedule(r, tokens)
                step.cursor += 1
            elif self.policy == "fcfs" or not rules.goes_on_after_itself:
                return

    def victim(self, step: Draft) -> Progress:
        """Choose whom to preempt: the last to join; by priority the least urgent and latest."""
        if self.policy == "fcfs":
            return step.turns[-1]
        step.name_everyone()
        return max(step.turns, key=lambda r: (r.priority, r.arrival_ns))

    def admit_waiting(self, step: Draft, limit: int, rules: Release) -> None:
        """Take from the head of the queue; the first that lacks room ends it for all behind."""
        for r in self.in_order(step.view.waiting):
            if not step.budget or step.size >= self.max_num_seqs:
                return step.hold(r, step.full)
            tokens = min(r.missing, limit) if limit else r.missing
            if tokens > step.budget and not self.enable_chunked_prefill:
                step.hold(r, f"{tokens} tokens do not fit the {step.budget} left in the budget")
                if rules.looks_past_long_prompts:
                    step.skipped.append(r)
                    continue
                return None
            tokens = min(tokens, step.budget)
            if rules.full_prompt_check:
                whole = r.total if self.scheduler_reserve_full_isl else tokens
                spare = int(self.watermark * step.view.total_blocks) if step.size else 0
                need = blocks_for(whole, step.view.block_size) + spare
            else:
                need = step.view.blocks_needed(r, tokens)
            if need > step.free:
                return step.hold(r, f"needs {so_many(need)}, {step.free} free")
            step.schedule(r, tokens)
            step.size += 1
        return None

    def in_order(self, waiting: Iterable[Progress]) -> Iterable[Progress]:
        """Return the queue: as it is, or by priority, arrival and then the id as text."""
        if self.policy == "fcfs":
            return waiting
        return sorted(waiting, key=lambda r: (r.priority, r.arrival_ns, str(r.id)))

    def new_queue(self, step: Draft) -> list[int] | None:
        """Return the queue after this step, if its order is not simply the old one's."""
        if self.policy == "fcfs" and not step.skipped:
            return None
        stay = [r for r in step.view.waiting if r.id not in step.tokens]
        if self.policy == "priority":
            return [r.id for r in self.in_order([*stay, *step.preempted])]
        skipped = {r.id: r for r in reversed(step.skipped)}
        return [*skipped, *(r.id for r in stay if r.id not in skipped)]
