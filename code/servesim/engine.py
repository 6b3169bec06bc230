"""The loop: arrivals, plan, audit, price, clock, tokens, finishes, and again.

The engine owns the clock, the progress of requests, who waits and who runs, and the KV blocks.
The policy owns the choice and the order. It is shown a `View` and answers with a `Plan`; the
engine knows no particular policy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

from . import audit
from .cost import OPT_13B_A100, Cost, Work
from .errors import InputError, PlanError, PolicyError, without_first_frame
from .kv import UNLIMITED, KVCache, blocks_for
from .metrics import Record, Result
from .plan import Plan, Queue, View
from .request import Progress, Request
from .trace import Scheduled, StepRecord

STALL_STEPS = 3
"""Steps in a row with nothing scheduled, after which a run counts as stalled (as in the traces
of vLLM's scheduler that the tests replay)."""


class SupportsPlan(Protocol):
    """Anything with a method ``plan(view)`` is a policy."""

    def plan(self, view: View) -> Plan:
        """Decide what to do in the next step."""


class _Job:
    """A request in the system: what a policy may see, what it may not, and what to report."""

    __slots__ = ("best", "claim", "final", "progress", "record", "running", "target")

    def __init__(
        self, record: Record, target: int, final: int, claim: int, predicted: int | None
    ) -> None:
        r = record.request
        self.claim = claim  # tokens that it has reserved room for while it runs
        self.record = record
        self.target = target  # tokens to sample before it is done
        self.final = final  # tokens in the cache just before that
        self.running = False
        self.best = 0  # most tokens it ever had in the cache
        self.progress = Progress(
            r.id,
            r.arrival_ns,
            r.prompt_len,
            r.priority,
            r.tenant,
            predicted_output=predicted,
        )


class Engine:
    """One run. `simulate` is the usual way in; the parameters are explained there."""

    def __init__(
        self,
        requests: Iterable[Request],
        policy: SupportsPlan,
        *,
        cost: Cost = OPT_13B_A100,
        kv: KVCache | None = None,
        never_fits: Literal["error", "reject", "try"] = "error",
        on_stall: Literal["error", "record"] = "error",
        record_steps: bool = False,
        count_first_token: bool = True,
        stamp_inside_step: bool = False,
        max_model_len: int | None = None,
        max_steps: int | None = None,
        stall_steps: int = STALL_STEPS,
        arrivals_by_step: bool = False,
        on_done: Callable[[Record], None] | None = None,
    ) -> None:
        for name, value, known in (
            ("never_fits", never_fits, ("error", "reject", "try")),
            ("on_stall", on_stall, ("error", "record")),
        ):
            if value not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, not {value!r}")
        if not callable(getattr(policy, "plan", None)) or isinstance(policy, type):
            raise InputError(f"{policy!r} is not a policy: it needs a method plan(self, view)")
        if stamp_inside_step and not hasattr(cost, "prefill_ns"):
            raise InputError("stamp_inside_step needs a price list with a price per prompt token")
        # A policy may keep notes in itself: each run gets a fresh copy.
        self.policy = copy.deepcopy(policy)
        self.cost, self.kv = cost, kv or KVCache()
        self.never_fits, self.on_stall, self.record_steps = never_fits, on_stall, record_steps
        self.count_first_token, self.stamp_inside_step = count_first_token, stamp_inside_step
        self.longest = max_model_len or UNLIMITED
        self.max_steps, self.stall_steps = max_steps, stall_steps
        self.arrivals_by_step, self.on_done = arrivals_by_step, on_done
        self.tell_output = bool(getattr(policy, "knows_output_length", False))
        reserve_all = bool(getattr(policy, "reserve_all", False))
        if reserve_all and not self.tell_output:
            raise InputError(
                f"{type(policy).__name__} declares reserve_all, which needs "
                "knows_output_length = True as well"
            )
        if self.kv.contiguous and not reserve_all:
            raise InputError(
                f"{type(policy).__name__} buys blocks on demand, and a contiguous KV cache cannot "
                "let a request grow: choose a policy that declares reserve_all"
            )

        self.pool = self.kv.pool()
        self.view = View(
            clock_ns=0,
            step=0,
            waiting=Queue(),
            running=[],
            free_blocks=self.pool.free,
            total_blocks=self.kv.blocks or UNLIMITED,
            block_size=self.kv.block_size,
            reserve_all=reserve_all,
            holes=self.pool.holes(),
        )
        self.jobs: dict[int, _Job] = {}  # in the system now
        self.live: dict[int, Progress] = {}  # the same, as far as a policy may see
        self.records: dict[int, Record] = {}
        self.steps: list[StepRecord] = []
        self.outcome: Literal["completed", "stalled", "max_steps"] = "completed"
        self.iterations = self.preemptions = self.taken = 0
        self.block_ns = self.token_ns = self.promised_ns = self.claimed_ns = 0
        self.running_ns = self.system_ns = 0
        self.cached = 0  # tokens in the cache now
        self.promised = 0  # tokens that those who hold blocks will have at their end
        self.claimed = 0  # tokens that they have reserved room for
        self.empty_steps = self.stale_steps = self.stale_tokens = 0
        self.arrived: list[int] = []  # since the last step, for its record

        if isinstance(requests, Sequence) and never_fits == "error":
            for r in requests:
                self._check_fits(r)
        self.source: Iterator[Request] = iter(requests)
        self.next: Request | None = None
        self.last_arrival_ns = 0
        self._pull()
        if self.next is None:
            raise InputError("the workload is empty: give at least one request")
        self.start_ns: int = 0 if arrivals_by_step else self.next.arrival_ns

    # -- the loop ---------------------------------------------------------------------------

    def run(self) -> Result:
        """Take steps until nothing is left, and return what happened."""
        while self.advance():
            pass
        return self.result()

    def result(self) -> Result:
        """Return what has happened so far."""
        name = repr(self.policy) if _has_repr(self.policy) else type(self.policy).__name__
        return Result(
            policy=name,
            records=list(self.records.values()),
            outcome=self.outcome,
            start_ns=self.start_ns,
            end_ns=self.view.clock_ns,
            steps=self.taken,
            engine_iterations=self.iterations,
            preemptions=self.preemptions,
            kv=self.kv,
            peak_blocks=self.pool.peak,
            block_ns=self.block_ns,
            token_ns=self.token_ns,
            promised_ns=self.promised_ns,
            claimed_ns=self.claimed_ns,
            running_ns=self.running_ns,
            system_ns=self.system_ns,
            step_records=self.steps,
        )

    def advance(self) -> bool:
        """Take one step, or move the clock to the next arrival. False when the run is over."""
        self._admit_arrivals()
        if not self.jobs:
            if self.next is None:
                return False
            self._jump_to_next_arrival()
            return True
        if self.max_steps is not None and self.taken >= self.max_steps:
            self.outcome = "max_steps"
            return False

        view = self.view
        view.free_blocks, view.holes = self.pool.free, self.pool.holes()
        view.more_to_come = self.next is not None
        self.iterations += 1
        waiting, running = len(view.waiting), view.running[:]
        answer = self._ask()
        # The policy may have counted down in these.
        view.free_blocks, view.holes = self.pool.free, self.pool.holes()
        audit.check_view(view, waiting, running)
        plan = audit.check(view, answer, self.live, _Running(self.jobs))
        if plan.wait:
            self._jump_to_next_arrival()
            return True
        self._take_step(plan)
        return not self._stalled(plan)

    def _ask(self) -> object:
        """Return the policy's plan; its own exception keeps its own traceback."""
        try:
            return self.policy.plan(self.view)
        except Exception as error:
            cause, tb = without_first_frame(error)
            name = type(self.policy).__name__
            raise PolicyError(name, self.view.step, _request_in(tb), cause) from cause

    def _take_step(self, plan: Plan) -> None:
        """Carry out a plan that has passed the audit."""
        view, start = self.view, self.view.clock_ns
        free_before = self.pool.free
        self._preempt(plan.preempted)
        self._join(plan)
        running, waiting = view.running, view.waiting

        work = self._work(plan)
        price = self.cost.price_ns(work)
        if type(price) is not int or price < 0:
            raise InputError(f"{self.cost!r} priced a step at {price!r}: not whole nanoseconds")
        record = None
        if self.record_steps:
            record = StepRecord(
                index=view.step,
                start_ns=start,
                cost_ns=price,
                arrived=self.arrived,
                preempted=list(plan.preempted),
                free_blocks=(free_before, self.pool.free, self.pool.free),
                work=work,
                running=[r.id for r in running],
                waiting=[r.id for r in waiting],
                blocks={r.id: r.blocks for r in running},
                reasons=dict(plan.reasons),
                idle_slots=plan.idle_slots,
            )
        self.arrived = []
        self._pass_time(price)
        self._give_tokens(plan, start, record)
        view.step += 1
        self.taken += 1
        if record is not None:
            record.free_blocks = (*record.free_blocks[:2], self.pool.free)
            self.steps.append(record)

    def _work(self, plan: Plan) -> Work:
        """Add up what the step computes, and buy the blocks it needs."""
        prefill = decodes = context = pairs = longest = 0
        for rid, tokens in plan.scheduled:
            r = self.live[rid]
            self.pool.take(r, self.view.blocks_needed(r, tokens))
            if r.decoding:
                decodes += 1
                context += r.computed + 1
            else:
                padded = max(tokens, plan.padded_prompt)
                prefill += padded
                longest = max(longest, padded)
                pairs += padded * (padded + 2 * r.computed)
        return Work(prefill, decodes + plan.idle_slots, context, pairs, longest)

    def _give_tokens(self, plan: Plan, start: int, record: StepRecord | None) -> None:
        """Advance everyone scheduled; sample where nothing is missing; let out the finished."""
        view, end = self.view, self.view.clock_ns
        prefilled, advanced, done = 0, False, False
        for rid, tokens in plan.scheduled:
            job = self.jobs[rid]
            r, out = job.progress, job.record
            decoding = r.decoding
            if out.first_scheduled_ns is None:
                out.first_scheduled_ns = start
            prefilled += 0 if decoding else tokens
            r.computed += tokens
            self.cached += tokens
            if r.computed > job.best:
                job.best, advanced = r.computed, True
            sampled = r.computed == r.total
            if sampled:
                r.produced += 1
                if out.first_token_ns is None or out.last_token_ns is None:
                    inside = self.stamp_inside_step
                    out.first_token_ns = start + self._prefill_ns(prefilled) if inside else end
                    out.last_token_ns = out.first_token_ns
                    out.output_tokens += self.count_first_token
                else:
                    out.gaps.append(end - out.last_token_ns)
                    out.last_token_ns = end
                    out.output_tokens += 1
                if r.produced == job.target or r.total >= self.longest:
                    self._finish(job)
                    if record is not None:
                        record.finished.append(rid)
                    done = True
            if record is not None:
                record.scheduled.append(Scheduled(rid, tokens, sampled, decoding))
        if done:
            view.running[:] = [r for r in view.running if r.id in self.jobs]
        self.stale_tokens = 0 if advanced else self.stale_tokens + sum(n for _, n in plan.scheduled)
        self.stale_steps = 0 if advanced else self.stale_steps + 1

    def _prefill_ns(self, tokens: int) -> int:
        price: Any = self.cost
        return int(price.prefill_ns(tokens))

    # -- arrivals ---------------------------------------------------------------------------

    def _due(self, request: Request) -> bool:
        now = self.view.step if self.arrivals_by_step else self.view.clock_ns
        return request.arrival_ns <= now

    def _admit_arrivals(self) -> None:
        """Put everyone who has arrived into the queue."""
        while self.next is not None and self._due(self.next):
            request = self.next
            record = self.records[request.id] = Record(request)
            if self.never_fits == "reject" and self._shortage(request):
                record.status = "rejected"
                self._report(record)
            else:
                job = self.jobs[request.id] = self._job(record)
                self.live[request.id] = job.progress
                if not self.arrivals_by_step:  # it has been here since it arrived in mid-step
                    self.system_ns += self.view.clock_ns - request.arrival_ns
                self.view.waiting.append(job.progress)
                self.arrived.append(request.id)
            self._pull()

    def _job(self, record: Record) -> _Job:
        request = record.request
        target = request.output_len + (not self.count_first_token)
        predicted, claim = self._prediction(request), self._claim(request)
        return _Job(record, target, self._final(request), claim, predicted)

    def _prediction(self, r: Request) -> int | None:
        """Return how many tokens a policy that may know it expects of a request."""
        if not self.tell_output:
            return None
        target = r.output_len + (not self.count_first_token)
        predict = getattr(self.policy, "predict", None)
        if predict is None:
            return target
        name = type(self.policy).__name__
        try:
            predicted = predict(r.prompt_len, target)
        except InputError:
            raise
        except Exception as error:
            cause, _ = without_first_frame(error)
            raise PolicyError(name, self.view.step, r.id, cause, "predict") from cause
        if type(predicted) is not int or predicted < 1:
            raise InputError(
                f"{name}.predict must return a whole number of tokens, 1 or more, not {predicted!r}"
            )
        return predicted

    def _claim(self, r: Request) -> int:
        """Return how many tokens a request reserves room for; 0 if it buys on demand."""
        if not self.view.reserve_all:
            return 0
        return r.prompt_len + (self._prediction(r) or 1) - 1

    def _final(self, r: Request) -> int:
        """Return the most tokens a request will have in the cache.

        The last token's keys and values are never needed. A first token that does not count
        makes one more.
        """
        return min(r.prompt_len + r.output_len + (not self.count_first_token), self.longest) - 1

    def _pull(self) -> None:
        """Look one request ahead."""
        self.next = r = next(self.source, None)
        if r is None:
            return
        if not isinstance(r, Request):
            raise InputError(f"a workload holds servesim.Request objects, not {r!r}")
        if r.id in self.records:
            raise InputError(f"request {r.id} appears twice: ids must be unique")
        if r.arrival_ns < self.last_arrival_ns:
            raise InputError(
                f"request {r.id} arrives at {r.arrival_ns} ns, before the one ahead of it "
                f"({self.last_arrival_ns} ns): sort the workload by arrival"
            )
        self.last_arrival_ns = r.arrival_ns
        if self.never_fits == "error":
            self._check_fits(r)

    def _jump_to_next_arrival(self) -> None:
        """Move the clock (or the step counter) to the next arrival; nothing is computed."""
        assert self.next is not None
        if self.arrivals_by_step:
            self.view.step = max(self.view.step, self.next.arrival_ns)
            return
        gap = max(0, self.next.arrival_ns - self.view.clock_ns)
        self._pass_time(gap)

    def _pass_time(self, ns: int) -> None:
        """Move the clock, and what is averaged over time."""
        self.view.clock_ns += ns
        self.block_ns += ns * self.pool.held
        self.token_ns += ns * self.cached
        self.promised_ns += ns * self.promised
        self.claimed_ns += ns * self.claimed
        self.running_ns += ns * len(self.view.running)
        self.system_ns += ns * len(self.jobs)

    def _shortage(self, r: Request) -> str:
        """Say why a request can never be served, or return nothing if it can."""
        need = blocks_for(max(self._final(r), self._claim(r)), self.kv.block_size)
        if need > self.kv.largest:
            side_by_side = " side by side" if self.kv.contiguous else ""
            return f"it needs {need} KV blocks and there are {self.kv.largest}{side_by_side}"
        return ""

    def _check_fits(self, request: object) -> None:
        if isinstance(request, Request) and (why := self._shortage(request)):
            raise InputError(
                f"request {request.id} can never run: {why}; give more blocks, or choose "
                "never_fits='reject' (--never-fits reject) to turn such requests away"
            )

    # -- who waits, who runs, who leaves ----------------------------------------------------

    def _preempt(self, ids: list[int]) -> None:
        for rid in ids:
            job = self.jobs[rid]
            self._release(job)
            job.progress.computed = 0
            job.progress.preemptions += 1
            job.record.preemptions += 1
            job.running = False
            self.view.running.remove(job.progress)
            self.view.waiting.appendleft(job.progress)
            self.preemptions += 1

    def _join(self, plan: Plan) -> None:
        """Move scheduled requests from the queue to the end of the batch."""
        waiting = self.view.waiting
        joined = 0
        for rid, _ in plan.scheduled:
            job = self.jobs[rid]
            if not job.running:
                job.running = True
                self.promised += job.final
                self.claimed += job.claim
                self.view.running.append(job.progress)
                joined += 1
        while joined and self.jobs[waiting[0].id].running:  # the usual case: from the head
            waiting.popleft()
            joined -= 1
        if joined:
            self.view.waiting = Queue(r for r in waiting if not self.jobs[r.id].running)
        if plan.queue is not None:
            self.view.waiting = Queue(self.live[rid] for rid in plan.queue)

    def _finish(self, job: _Job) -> None:
        self._release(job)
        job.record.status = "finished"
        del self.jobs[job.progress.id], self.live[job.progress.id]
        self._report(job.record)

    def _release(self, job: _Job) -> None:
        self.pool.give_back(job.progress)
        self.cached -= job.progress.computed
        self.promised -= job.final
        self.claimed -= job.claim

    def _report(self, record: Record) -> None:
        if self.on_done is not None:
            self.on_done(record)

    # -- standing still ---------------------------------------------------------------------

    def _stalled(self, plan: Plan) -> bool:
        """Tell whether a recorded run has stalled; raise if a run that must finish has."""
        empty = not plan.scheduled and not plan.preempted
        self.empty_steps = self.empty_steps + 1 if empty else 0
        if self.on_stall == "record":
            if self.empty_steps and self.next is not None:
                self.empty_steps = 0
            stalled = self.empty_steps >= self.stall_steps
            self.outcome = "stalled" if stalled else self.outcome
            return stalled
        if self.empty_steps >= self.stall_steps:
            detail = (
                f"nothing was scheduled in {self.stall_steps} steps in a row; "
                "schedule something, or wait for the next arrival"
            )
            raise PlanError(self.view.step - 1, self._head(), "progress", detail)
        if self.stale_steps and self.stale_steps % 1000 == 0:
            # Honest recomputation brings each request back to where it was, once or twice.
            redo = 4 * sum(job.best for job in self.jobs.values())
            if self.stale_tokens > redo:
                detail = (
                    f"in {self.stale_steps} steps {self.stale_tokens} tokens were computed again "
                    "and no request got any further: the preemptions go round in circles"
                )
                raise PlanError(self.view.step - 1, self._head(), "progress", detail)
        return False

    def _head(self) -> int | None:
        """Return the id of the request that has been in the system longest."""
        return next(iter(self.jobs), None)


class _Running:
    """The ids of running requests, as a container: tests membership, copies nothing."""

    def __init__(self, jobs: dict[int, _Job]) -> None:
        self._jobs = jobs

    def __contains__(self, rid: object) -> bool:
        job = self._jobs.get(rid)  # type: ignore[call-overload]
        return job is not None and bool(job.running)


def _has_repr(policy: object) -> bool:
    return type(policy).__repr__ is not object.__repr__


def _request_in(tb: Any) -> int | None:
    """Find the request that a failing policy was looking at: the innermost local variable."""
    found = None
    while tb is not None:
        for value in tb.tb_frame.f_locals.values():
            if isinstance(value, Progress):
                found = value.id
        tb = tb.tb_next
    return found


def simulate(
    requests: Iterable[Request],
    policy: SupportsPlan,
    *,
    cost: Cost = OPT_13B_A100,
    kv: KVCache | None = None,
    never_fits: Literal["error", "reject", "try"] = "error",
    on_stall: Literal["error", "record"] = "error",
    record_steps: bool = False,
    count_first_token: bool = True,
    stamp_inside_step: bool = False,
    max_model_len: int | None = None,
    max_steps: int | None = None,
    stall_steps: int = STALL_STEPS,
    arrivals_by_step: bool = False,
    on_done: Callable[[Record], None] | None = None,
) -> Result:
    """Run a workload under a policy.

    Parameters
    ----------
    requests : iterable of Request
        In order of arrival.
    policy : object with a method ``plan(view)``
        Copied before the run, so it can be used again.
    cost : Cost
        Prices of a step; by default DistServe's fit for OPT-13B on one A100.
    kv : KVCache
        KV memory; by default without a limit.
    never_fits : {"error", "reject", "try"}
        What to do with a request that the whole KV cache could not hold: refuse the run, turn
        the request away and count it, or let the policy see it.
    on_stall : {"error", "record"}
        Whether a policy that stands still is an error or an outcome.
    record_steps : bool
        Keep every step in ``result.step_records``.
    count_first_token : bool
        False: the token that the prefill makes does not count as output, and `output_len` more
        are produced (a quirk of both toy programs).
    stamp_inside_step : bool
        True: the first token is stamped when its own prompt is done, in running order, and not
        at the end of the step (a quirk of system A).
    max_model_len : int or None
        A request ends when prompt and output reach this many tokens.
    max_steps : int or None
        Cut the run after so many steps.
    stall_steps : int
        Steps in a row with nothing scheduled, after which the run counts as stalled.
    arrivals_by_step : bool
        Read ``arrival_ns`` as the index of the step at which a request arrives.
    on_done : callable, optional
        Called with the `Record` of each request when it is finished or rejected.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        If the workload or an option is not usable.
    PlanError
        If the policy breaks a rule of `servesim.audit`.
    PolicyError
        If the policy raises an exception of its own.
    """
    options = {name: value for name, value in locals().items() if name not in _POSITIONAL}
    return Engine(requests, policy, **options).run()


_POSITIONAL = ("requests", "policy")
