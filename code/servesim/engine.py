"""The loop: arrivals, plan, audit, price, clock, tokens, finishes, and again.

The engine owns the clock, the progress of requests, who waits and who runs, and the KV blocks.
The policy owns the choice and the order. It is shown a `View` and answers with a `Plan`; the
engine knows no particular policy.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeVar

from . import audit
from .arrivals import Arrivals
from .batch import Batch
from .cost import OPT_13B_A100, Cost, Work
from .errors import InputError, PolicyError, brief, students_place, without_first_frame
from .job import Job, Level
from .kv import UNLIMITED, KVCache, blocks_for
from .ledger import NEVER, Ledger, Record, Stint, TickLog
from .metrics import Result
from .plan import Plan, Queue, View
from .request import LATEST_NS, Progress, Request, write
from .trace import Scheduled, StepRecord

STALL_STEPS = 3
"""Steps in a row with nothing scheduled, after which a run counts as stalled (as in the traces
of vLLM's scheduler that the tests replay)."""


T = TypeVar("T")


class SupportsPlan(Protocol):
    """Anything with a method ``plan(view)`` is a policy."""

    def plan(self, view: View) -> Plan:
        """Decide what to do in the next step."""


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
        skip: bool = True,
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
        for name, limit, least in (
            ("max_model_len", 1 if max_model_len is None else max_model_len, 1),
            ("max_steps", 0 if max_steps is None else max_steps, 0),
            ("stall_steps", stall_steps, 1),
        ):
            if type(limit) is not int or limit < least:
                raise InputError(
                    f"{name} must be a whole number, {least} or more, not {brief(limit)}"
                )
        if isinstance(policy, type):
            name = policy.__name__
            raise InputError(f"the class {name} is not a policy: give an object, {name}(...)")
        if not callable(_read(policy, "plan")):
            name = type(policy).__name__
            raise InputError(f"{name} is not a policy: it needs a method plan(self, view)")
        if stamp_inside_step and not hasattr(cost, "prefill_ns"):
            raise InputError("stamp_inside_step needs a price list with a price per prompt token")
        # A policy may keep notes in itself: each run gets a fresh copy.
        self.policy = _copy_of(policy)
        self.name = _name_of(policy)
        self.cost, self.kv = cost, kv or KVCache()
        self.growth_ns: Callable[[int], int] | None = getattr(cost, "growth_ns", None)
        self.never_fits, self.record_steps = never_fits, record_steps
        self.count_first_token, self.stamp_inside_step = count_first_token, stamp_inside_step
        self.longest = max_model_len or UNLIMITED
        self.max_steps = max_steps
        self.skip = skip and not record_steps
        self.arrivals_by_step, self.on_done = arrivals_by_step, on_done
        self.tell_output = bool(_read(policy, "knows_output_length"))
        reserve_all = bool(_read(policy, "reserve_all"))
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
            running=Batch(self.kv.block_size, on_demand=not reserve_all),
            free_blocks=self.pool.free,
            total_blocks=self.kv.blocks or UNLIMITED,
            block_size=self.kv.block_size,
            reserve_all=reserve_all,
            holes=self.pool.holes(),
        )
        self.batch = self.view.running
        self.jobs: dict[int, Job] = {}  # in the system now
        self.log = TickLog()
        self.ledger = Ledger(self.log)
        self.finishes: list[tuple[int, int, int]] = []  # heap: tick, place in the batch, id
        self.fresh: list[Job] = []  # decode from the next tick on; had no token at the last one
        self.last_tick_ns = NEVER
        self.joined = self.outgrowing = 0
        self.steps: list[StepRecord] = []
        self.outcome: Literal["completed", "stalled", "max_steps"] = "completed"
        self.iterations = self.preemptions = self.taken = 0
        self.blocks, self.tokens = Level(), Level()  # held; in the cache
        self.promised = Level()  # tokens that those in the batch will have at their end
        self.claimed = Level()  # tokens that they have reserved room for
        self.in_batch, self.in_system = Level(), Level()  # requests
        self.watch = audit.Watch(stall_steps, tolerant=on_stall == "record")
        self.arrived: list[int] = []  # since the last step, for its record
        self.paused: dict[int, str] = {}  # why plans waited since then

        self.arrivals = Arrivals(requests, self._check_fits if never_fits == "error" else None)
        self.start_ns = 0 if arrivals_by_step else self.arrivals.due_at

    # -- the loop ---------------------------------------------------------------------------

    def run(self) -> Result:
        """Take steps until nothing is left, and return what happened."""
        while self.advance():
            pass
        return self.result()

    def result(self) -> Result:
        """Return what has happened so far."""
        for job in self.jobs.values():
            self._write_down(job)
        now = self.view.clock_ns
        limited = self.kv.blocks is not None  # without a limit a reservation changes nothing
        return Result(
            policy=self.name,
            told_output_length=self.tell_output and (limited or not self.view.reserve_all),
            token_budget=self._token_budget(),
            records=self.ledger,
            outcome=self.outcome,
            start_ns=self.start_ns,
            end_ns=now,
            steps=self.taken,
            engine_iterations=self.iterations,
            preemptions=self.preemptions,
            kv=self.kv,
            peak_blocks=self.pool.peak,
            block_ns=self.blocks.integral(now),
            token_ns=self.tokens.integral(now),
            promised_ns=self.promised.integral(now),
            claimed_ns=self.claimed.integral(now),
            running_ns=self.in_batch.integral(now),
            system_ns=self.in_system.integral(now),
            step_records=self.steps,
        )

    def _token_budget(self) -> int | None:
        """Return how many tokens a step may hold, if the policy says so; vLLM has its own name."""
        names = ("token_budget", "max_num_batched_tokens")
        budgets = (_read(self.policy, name) for name in names)
        return next((b for b in budgets if type(b) is int and b > 0), None)

    def advance(self) -> bool:
        """Take a step, or several equal ones, or move the clock on. False when the run is over."""
        view = self.view
        while self.arrivals.due_at <= (view.step if self.arrivals_by_step else view.clock_ns):
            self._admit()
        if not self.jobs:
            if self.arrivals.next is None:
                return False
            self._jump_to_next_arrival()
            return True
        if self.max_steps is not None and self.taken >= self.max_steps:
            self.outcome = "max_steps"
            return False

        self.iterations += 1
        self._show_memory()
        view.more_to_come = self.arrivals.next is not None
        given = audit.given(view)
        answer = self._ask()
        audit.check_view(view, given)
        self._show_memory()  # again: the policy may have counted down in it
        if self.outgrowing and isinstance(answer, Plan) and answer.decode_all:
            answer = self._spelled_out(answer)
        plan = audit.check(view, answer, self._look)
        if plan.wait:
            self.paused |= plan.reasons
            self._jump_to_next_arrival()
            return True
        if plan.rejected:
            self._turn_away(plan.rejected)
            decoding = plan.decode_all and self.batch.decodes
            if not (plan.scheduled or plan.preempted or decoding):
                return True  # nothing is computed, so no time passes
        worked = self._take_step(plan)
        if self.watch.stands_still(view, worked, self.jobs.values()):
            self.outcome = "stalled"
            return False
        return True

    def _show_memory(self) -> None:
        self.view.free_blocks = self.pool.free
        self.view.holes = self.pool.holes()

    def _ask(self) -> object:
        """Return the policy's plan; its own exception keeps its own traceback."""
        try:
            return self.policy.plan(self.view)
        except (Exception, SystemExit) as error:
            cause, tb = without_first_frame(error)
            name = type(self.policy).__name__
            raise PolicyError(name, self.view.step, _request_in(tb), cause) from cause
        except KeyboardInterrupt as error:
            if not type(self.policy).__module__.startswith(f"{__package__}."):
                error.add_note(f"in step {self.view.step}{students_place(error)}")
            raise

    def _look(self, rid: int) -> Progress | None:
        """Return the progress of a request in the system, brought up to date."""
        if self.batch.has(rid):
            return self.batch.look(rid)
        job = self.jobs.get(rid)
        return None if job is None else job.progress

    def _take_step(self, plan: Plan) -> bool:
        """Carry out a plan that has passed the audit. False if there was nothing in it."""
        start, free_before = self.view.clock_ns, self.pool.free
        if plan.preempted:
            self._preempt(plan.preempted)
        if plan.scheduled or plan.queue is not None:
            self._join(plan)
        together, singly = self._split(plan)
        work = self._work(plan, together, singly)
        price = self._price(work)
        record = None
        if self.record_steps:
            record = self._record(plan, together, work, price, free_before)
        self.arrived, self.paused = [], {}

        if (
            self.skip
            and plan.repeatable
            and together
            and not (singly or plan.preempted or plan.rejected)
        ):
            steps, done = self._repeat(work, price)
        else:
            steps, done = 1, self._pass_steps(1, price, 0, together)
        if singly:
            done += self._give_tokens(singly, start)
        self.view.step += steps
        self.taken += steps
        if together:
            self.watch.got_further()
        if record is not None:
            record.finished = [s.id for s in record.scheduled if s.id in done]
            record.free_blocks = (*record.free_blocks[:2], self.pool.free)
            self.steps.append(record)
        return bool(together or singly or plan.preempted)

    def _split(self, plan: Plan) -> tuple[bool, list[tuple[int, int]]]:
        """Tell whether all that decode get a token, and return who is scheduled besides.

        A plan that names each of them says the same as ``decode_all``.
        """
        if plan.decode_all or not self.batch.decodes:
            return self.batch.decodes > 0, plan.scheduled
        others = [pair for pair in plan.scheduled if self.jobs[pair[0]].after == NEVER]
        if len(plan.scheduled) - len(others) < self.batch.decodes or self.outgrowing:
            return False, plan.scheduled
        return True, others

    def _work(self, plan: Plan, together: bool, singly: list[tuple[int, int]]) -> Work:
        """Add up what the step computes, and buy the blocks for those who do not just decode."""
        prefill = pairs = longest = 0
        decodes, context = (self.batch.decodes, self.batch.context) if together else (0, 0)
        for rid, tokens in singly:
            r = self.batch.look(rid)
            if r.decoding:
                # It decodes on its own; from its next token on it may do so with the others.
                self._stop_decoding(self.jobs[rid])
                decodes += 1
                context += r.computed + 1
            else:
                padded = max(tokens, plan.padded_prompt)
                prefill += padded
                longest = max(longest, padded)
                pairs += padded * (padded + 2 * r.computed)
            blocks = -r.blocks  # in a contiguous cache it may give back what it has outgrown
            self.pool.take(r, self.view.blocks_needed(r, tokens))
            blocks += r.blocks
            self.blocks.add(blocks, blocks * self.view.clock_ns)
        return Work(prefill, decodes + plan.idle_slots, context, pairs, longest)

    # -- time -------------------------------------------------------------------------------

    def _repeat(self, work: Work, price: int) -> tuple[int, list[int]]:
        """Take as many equal steps as there are; return how many, and the ids of those done.

        This is all of event skipping. The plan promised that it repeats itself until somebody
        arrives, finishes or finds no block. So that many steps are taken without asking again,
        and the sums over them are closed forms in `_pass_steps`. Without skipping it would be one
        step each time. That is the definition: both give the same result, digit for digit.
        """
        most = self.finishes[0][0] - self.batch.ticks
        if self.max_steps is not None:
            most = min(most, self.max_steps - self.taken)
        if self.arrivals_by_step:
            most = min(most, self.arrivals.due_at - self.view.step)
        most = max(1, self.batch.steps_within(self.pool.free, most))

        if self.growth_ns is not None:
            growth = self.growth_ns(self.batch.decodes)
            if not self.arrivals_by_step:
                gap = self.arrivals.due_at - self.view.clock_ns
                most = steps_until(gap, price, growth, most)
            return most, self._pass_steps(most, price, growth, together=True)

        steps, done = 1, self._pass_steps(1, price, 0, together=True)
        while steps < most and (self.arrivals_by_step or self.arrivals.due_at > self.view.clock_ns):
            price = self._price(work._replace(context_tokens=self.batch.context))
            done += self._pass_steps(1, price, 0, together=True)
            steps += 1
        return steps, done

    def _price(self, work: Work) -> int:
        price = self.cost.price_ns(work)
        if type(price) is not int or price < 0:
            raise InputError(f"{self.cost!r} priced a step at {price!r}: not whole nanoseconds")
        return price

    def _pass_steps(self, steps: int, price: int, growth: int, together: bool) -> list[int]:
        """Let the time of equal steps pass, in which those that decode get their tokens.

        Step `j` costs ``price + j * growth``. Returns the ids of those who are done.
        """
        batch, start = self.batch, self.view.clock_ns
        span = price * steps + growth * (steps * (steps - 1) // 2)
        if start + span > LATEST_NS:
            raise InputError(
                f"step {self.view.step} would end after {start + span} ns, and the clock ends at "
                f"{LATEST_NS} ns (292 years): lower the prices"
            )
        self.view.clock_ns = start + span
        if not together:
            return []
        n, ends = batch.decodes, start * steps + span  # the sum of the times at which steps end
        if steps > 1:
            ends += price * (steps * (steps - 1) // 2)
            ends += growth * ((steps - 2) * (steps - 1) * steps // 6)
        self.tokens.add(n * steps, n * ends)
        for first, times, blocks in batch.purchases(steps):
            self.pool.buy(times * blocks)
            begins = 0  # the sum of the times at which those steps begin
            for j in range(first, steps, batch.block_size):
                begins += start + price * j + growth * (j * (j - 1) // 2)
            self.blocks.add(times * blocks, blocks * begins)
        first_end = start + price
        if self.fresh or first_end - price != self.last_tick_ns:
            self._log_gaps(first_end, price, growth, steps)
        else:
            self.log.extend(price, growth, steps, n)
        batch.tick(steps)
        self.last_tick_ns = self.view.clock_ns
        return self._finish_due()

    def _log_gaps(self, first_end: int, price: int, growth: int, steps: int) -> None:
        """Note the gaps that tokens at the ends of these steps make, if not all are steps long."""
        n, own = self.batch.decodes, 0
        for job in self.fresh:
            if job.after == self.batch.ticks:
                job.gap, job.after = first_end - job.last_token_ns, job.after + 1
                own += 1
        self.fresh.clear()
        gap = first_end - self.last_tick_ns if self.last_tick_ns != NEVER else 0
        self.log.extend(gap, 0, 1, n - own)
        self.log.extend(price + growth, growth, steps - 1, n)

    def _finish_due(self) -> list[int]:
        """Let out those who had their last token at this tick, in order of joining."""
        done: list[int] = []
        while self.finishes and self.finishes[0][0] <= self.batch.ticks:
            tick, _, rid = heapq.heappop(self.finishes)
            job = self.jobs.get(rid)
            if job is not None and job.done_at == tick and job.after != NEVER:
                self._finish(job)
                done.append(rid)
        return done

    # -- tokens of those who do not just decode ------------------------------------------------

    def _give_tokens(self, singly: list[tuple[int, int]], start: int) -> list[int]:
        """Advance each; sample where nothing is missing. Returns the ids of those who are done."""
        end, ledger = self.view.clock_ns, self.ledger
        prefilled, done = 0, []
        for rid, tokens in singly:
            job = self.jobs[rid]
            r = job.progress
            if ledger.first_scheduled_ns[job.row] == NEVER:
                ledger.first_scheduled_ns[job.row] = start
            if not r.decoding:
                prefilled += tokens
            write(r, "computed", r.computed + tokens)
            self.tokens.add(tokens, tokens * end)
            self.watch.tokens += tokens
            if r.computed > job.best:
                job.best = r.computed
                self.watch.got_further()
            if r.computed < r.total:
                if r.decoding:  # computed again up to its last token
                    self._start_decoding(job)
                continue
            write(r, "produced", r.produced + 1)
            if job.first_token_ns == NEVER:
                inside = self.stamp_inside_step
                job.first_token_ns = start + self._prefill_ns(prefilled) if inside else end
                job.last_token_ns = job.first_token_ns
            else:
                here = self.batch.ticks
                job.stints.append(Stint(end - job.last_token_ns, here, here))
                job.last_token_ns = end
            if r.produced == job.target or r.total >= self.longest:
                self._finish(job)
                done.append(rid)
            else:
                self._start_decoding(job)
        return done

    def _start_decoding(self, job: Job) -> None:
        """Let a job advance with the others from the next tick on."""
        r, ticks = job.progress, self.batch.ticks
        self.batch.start_decoding(r)
        job.after, job.gap = ticks, NEVER
        job.done_at = ticks + min(job.target - r.produced, self.longest - r.total)
        heapq.heappush(self.finishes, (job.done_at, job.place, r.id))
        if job.last_token_ns != self.last_tick_ns:
            self.fresh.append(job)

    def _stop_decoding(self, job: Job) -> None:
        """Bring a job up to date, and let it advance on its own."""
        if job.after == NEVER:
            return
        self.batch.stop_decoding(job.progress.id)
        if stint := self._stint(job):
            job.stints.append(stint)
            job.last_token_ns = self.last_tick_ns
        job.best = max(job.best, job.progress.computed)
        job.after = NEVER

    def _stint(self, job: Job) -> Stint | None:
        """Return the stretch in which a job has decoded with the others, if it has had a tick."""
        if job.after == NEVER or (job.gap == NEVER and job.after == self.batch.ticks):
            return None
        return Stint(job.gap, job.after, self.batch.ticks)

    def _prefill_ns(self, tokens: int) -> int:
        price: Any = self.cost
        return int(price.prefill_ns(tokens))

    def _spelled_out(self, plan: Plan) -> Plan:
        """Name everyone that decodes: some of them have outgrown what they had reserved."""
        decodes = [(r.id, 1) for r in self.batch if r.decoding and r.id not in plan.preempted]
        return replace(plan, decode_all=False, scheduled=decodes + plan.scheduled)

    # -- arrivals ---------------------------------------------------------------------------

    def _admit(self) -> None:
        """Put the request that has arrived into the queue, and look at the next one."""
        due_at, request = self.arrivals.due_at, self.arrivals.take()
        assert request is not None
        row = self.ledger.open(request)
        if self.never_fits == "reject" and self._shortage(request):
            self.ledger.set_status(row, "rejected")
            self._report(row)
        else:
            job = self.jobs[request.id] = self._job(row, request)
            # It may have come in mid-step.
            self.in_system.add(1, self.view.clock_ns if self.arrivals_by_step else due_at)
            self.view.waiting.append(job.progress)
            self.arrived.append(request.id)

    def _job(self, row: int, r: Request) -> Job:
        predicted = self._prediction(r)
        progress = Progress(
            r.id, r.arrival_ns, r.prompt_len, r.priority, r.tenant, predicted_output=predicted
        )
        target = r.output_len + (not self.count_first_token)
        claim = r.prompt_len + (predicted or 1) - 1 if self.view.reserve_all else 0
        return Job(row, progress, target, self._final(r), claim)

    def _prediction(self, r: Request) -> int | None:
        """Return how many tokens a policy that may know it expects of a request."""
        if not self.tell_output:
            return None
        target = r.output_len + (not self.count_first_token)
        predict = _read(self.policy, "predict")
        if predict is None:
            return target
        name = type(self.policy).__name__
        try:
            predicted = predict(r.prompt_len, target)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            cause, _ = without_first_frame(error)
            raise PolicyError(name, self.view.step, r.id, cause, "predict") from cause
        if type(predicted) is not int or predicted < 1:
            raise InputError(
                f"{name}.predict must return a whole number of tokens (int), 1 or more, "
                f"not {brief(predicted)}"
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

    def _jump_to_next_arrival(self) -> None:
        """Move the clock (or the step counter) to the next arrival; nothing is computed."""
        view, due_at = self.view, self.arrivals.due_at
        if self.arrivals_by_step:
            view.step = max(view.step, due_at)
        else:
            view.clock_ns = max(view.clock_ns, due_at)

    def _shortage(self, r: Request) -> str:
        """Say why a request can never be served, or return nothing if it can."""
        need = blocks_for(max(self._final(r), self._claim(r)), self.kv.block_size)
        if need > self.kv.largest:
            side_by_side = " side by side" if self.kv.contiguous else ""
            return f"it needs {need} KV blocks and there are {self.kv.largest}{side_by_side}"
        return ""

    def _check_fits(self, request: Request) -> None:
        if why := self._shortage(request):
            raise InputError(
                f"request {request.id} can never run: {why}; give more blocks, or choose "
                "never_fits='reject' (--never-fits reject) to turn such requests away"
            )

    # -- who waits, who runs, who leaves ----------------------------------------------------

    def _preempt(self, ids: list[int]) -> None:
        for rid in ids:
            job = self.jobs[rid]
            self._release(job)
            write(job.progress, "computed", 0)
            write(job.progress, "preemptions", job.progress.preemptions + 1)
            self.view.waiting.appendleft(job.progress)
            self.preemptions += 1

    def _join(self, plan: Plan) -> None:
        """Move scheduled requests from the queue to the end of the batch."""
        waiting, batch, now = self.view.waiting, self.batch, self.view.clock_ns
        joined = 0
        for rid, _ in plan.scheduled:
            if not batch.has(rid):
                job = self.jobs[rid]
                self.joined += 1
                job.place = self.joined
                self.in_batch.add(1, now)
                self.promised.add(job.final, job.final * now)
                if job.claim:
                    self.claimed.add(job.claim, job.claim * now)
                self.outgrowing += 0 < job.claim < job.final
                batch.join(job.progress)
                joined += 1
        while joined:  # the usual case: from the head
            head = waiting.popleft()
            if not batch.has(head.id):
                waiting.appendleft(head)
                break
            joined -= 1
        if joined:
            self.view.waiting = Queue(r for r in waiting if not batch.has(r.id))
        if plan.queue is not None:
            self.view.waiting = Queue(self.jobs[rid].progress for rid in plan.queue)

    def _turn_away(self, ids: list[int]) -> None:
        """Let requests go that the policy does not want to serve."""
        for rid in ids:
            job = self.jobs.pop(rid)
            self._write_down(job)
            self.ledger.set_status(job.row, "rejected")
            self.in_system.add(-1, -self.view.clock_ns)
            self._report(job.row)
        self.view.waiting = Queue(r for r in self.view.waiting if r.id in self.jobs)

    def _finish(self, job: Job) -> None:
        self._release(job)
        self._write_down(job)
        self.ledger.set_status(job.row, "finished")
        del self.jobs[job.progress.id]
        self.in_system.add(-1, -self.view.clock_ns)
        self._report(job.row)

    def _release(self, job: Job) -> None:
        """Take a job out of the batch and its blocks back."""
        self._stop_decoding(job)
        self.batch.leave(job.progress.id)
        r, now = job.progress, self.view.clock_ns
        self.in_batch.add(-1, -now)
        self.promised.add(-job.final, -job.final * now)
        if job.claim:
            self.claimed.add(-job.claim, -job.claim * now)
        self.tokens.add(-r.computed, -r.computed * now)
        self.blocks.add(-r.blocks, -r.blocks * now)
        self.pool.give_back(r)
        self.outgrowing -= 0 < job.claim < job.final

    def _write_down(self, job: Job) -> None:
        """Copy to the ledger what is known of a job."""
        ledger, row, r = self.ledger, job.row, job.progress
        if self.batch.has(r.id):
            self.batch.look(r.id)
        stint = self._stint(job)
        ledger.first_token_ns[row] = job.first_token_ns
        ledger.last_token_ns[row] = self.last_tick_ns if stint else job.last_token_ns
        ledger.output_tokens[row] = max(0, r.produced - (not self.count_first_token))
        ledger.preemptions[row] = r.preemptions
        ledger.set_stints(row, [*job.stints, stint] if stint else job.stints)

    def _report(self, row: int) -> None:
        if self.on_done is not None:
            self.on_done(self.ledger[row])

    def _record(
        self, plan: Plan, together: bool, work: Work, price: int, free_before: int
    ) -> StepRecord:
        """Write down a step as it begins."""
        running = list(self.batch)
        decodes = [(r.id, 1) for r in running if r.decoding] if plan.decode_all else []
        scheduled = []
        for rid, tokens in decodes + plan.scheduled:
            r = self.jobs[rid].progress
            scheduled.append(Scheduled(rid, tokens, tokens == r.missing, r.decoding))
        blocks, free = {r.id: r.blocks for r in running}, self.pool.free
        if together:  # these get their blocks as time passes
            free -= self.batch.blocks_to_decode
            decoding = (r for r in running if self.jobs[r.id].after != NEVER)
            blocks |= {r.id: r.blocks + self.view.blocks_needed(r, 1) for r in decoding}
        return StepRecord(
            index=self.view.step,
            start_ns=self.view.clock_ns,
            cost_ns=price,
            arrived=self.arrived,
            preempted=list(plan.preempted),
            free_blocks=(free_before, free, free),
            work=work,
            running=[r.id for r in running],
            waiting=[r.id for r in self.view.waiting],
            blocks=blocks,
            reasons=dict(plan.reasons),
            idle_slots=plan.idle_slots,
            paused=self.paused,
            scheduled=scheduled,
        )


def steps_until(gap: int, price: int, growth: int, most: int) -> int:
    """Return how many steps it takes to fill `gap` ns, from 1 to `most`.

    Step `j` takes ``price + j * growth`` ns.
    """
    if not growth:
        return max(1, min(most, -(-gap // price))) if price else most
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if price * middle + growth * (middle * (middle - 1) // 2) < gap:
            low = middle + 1
        else:
            high = middle
    return low


def _read(policy: object, name: str) -> Any:
    """Return an attribute of a policy, None if it has none; its own code may fail on the way."""
    try:
        return getattr(policy, name, None)
    except (Exception, SystemExit) as error:
        cause, _ = without_first_frame(error)
        raise PolicyError(type(policy).__name__, None, None, cause) from cause


def _copy_of(policy: T) -> T:
    try:
        return copy.deepcopy(policy)
    except Exception as error:
        raise InputError(
            f"{type(policy).__name__} cannot be copied for the run ({error}): keep no open files, "
            "generators or locks in a policy; make them in plan()"
        ) from None


def _name_of(policy: object) -> str:
    """Return a policy with its options, as it is before the run."""
    if type(policy).__repr__ is object.__repr__:
        return type(policy).__name__
    try:
        return repr(policy)
    except (Exception, SystemExit) as error:
        cause, _ = without_first_frame(error)
        raise PolicyError(type(policy).__name__, None, None, cause) from cause


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
    skip: bool = True,
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
    skip : bool
        Take equal steps at once where the plan allows it. False takes each on its own, with the
        same result.
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
