"""The loop: arrivals, plan, audit, price, clock, tokens, finishes, and again.

The engine owns the clock, the progress of requests, who waits and who runs, and the KV blocks.
The policy owns the choice and the order. It is shown a `View` and answers with a `Plan`; the
engine knows no particular policy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, Literal, Protocol, TypeVar

from . import audit, checks
from .arrivals import NOT_DUE, Arrivals
from .audit import Grant
from .batch import Batch
from .cost import OPT_13B_A100, Affine, Cost, Roofline, Work, new_work, shortcut
from .errors import InputError, PolicyError, brief, students_place, without_first_frame
from .job import Job, Past
from .kv import UNLIMITED, KVCache, blocks_for
from .ledger import NEVER, Ledger, Record, Status, TickLog
from .metrics import Result
from .plan import Plan, Queue, View
from .request import (
    LATEST_NS,
    Progress,
    Request,
    new_progress,
    write_computed,
    write_preemptions,
    write_produced,
)
from .stretch import Even, Uneven
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

    __slots__ = (
        "arrivals",
        "arrivals_by_step",
        "arrived",
        "batch",
        "cached",
        "cost",
        "finishes",
        "fresh",
        "growth_ns",
        "iterations",
        "jobs",
        "kv",
        "last_tick_ns",
        "ledger",
        "log",
        "longest",
        "max_steps",
        "name",
        "never_fits",
        "on_done",
        "one_by_one",
        "outcome",
        "outgrowing",
        "past",
        "paused",
        "policy",
        "pool",
        "preemptions",
        "price_ns",
        "prices_ns",
        "record_steps",
        "rejected",
        "skip",
        "stamp_inside_step",
        "start_ns",
        "steps",
        "taken",
        "tell_output",
        "token_budget",
        "uncounted",
        "view",
        "watch",
    )

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
                raise InputError(f"{name} must be one of {', '.join(known)}, not {brief(value)}")
        for name, limit, least in (
            ("max_model_len", 1 if max_model_len is None else max_model_len, 1),
            ("max_steps", 0 if max_steps is None else max_steps, 0),
            ("stall_steps", stall_steps, 1),
        ):
            if type(limit) is not int or not least <= limit <= UNLIMITED:
                raise InputError(
                    f"{name} must be a whole number, {least} or more, not {brief(limit)}"
                )
        checks.flag(
            record_steps=record_steps,
            skip=skip,
            count_first_token=count_first_token,
            stamp_inside_step=stamp_inside_step,
            arrivals_by_step=arrivals_by_step,
        )
        checks.maybe(checks.instance, KVCache, kv=kv)
        checks.maybe(checks.function, on_done=on_done)
        checks.method("price_ns", cost=cost)
        if isinstance(policy, type):
            name = policy.__name__
            raise InputError(f"the class {name} is not a policy: give an object, {name}(...)")
        if not callable(_read(policy, "plan")):
            raise InputError(f"{brief(policy)} is not a policy: it needs a method plan(self, view)")
        if stamp_inside_step and not hasattr(cost, "prefill_ns"):
            raise InputError("stamp_inside_step needs a price list with a price per prompt token")
        # A policy may keep notes in itself: each run gets a fresh copy.
        self.policy = _copy_of(policy)
        self.name = _name_of(policy)
        self.cost, self.kv = cost, kv or KVCache()
        self.price_ns = cost.price_ns if type(cost) in (Affine, Roofline) else self._price
        self.growth_ns: Callable[[int], int] | None = shortcut(cost, "growth_ns")
        self.prices_ns: Callable[[Work, int, int], list[int]] | None = shortcut(cost, "prices_ns")
        self.never_fits, self.record_steps = never_fits, record_steps
        self.uncounted, self.stamp_inside_step = int(not count_first_token), stamp_inside_step
        self.longest = max_model_len or UNLIMITED
        self.max_steps = max_steps
        self.skip, self.one_by_one = skip and not record_steps, not skip
        self.arrivals_by_step, self.on_done = arrivals_by_step, on_done
        self.token_budget = _token_budget(policy)
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
        self.finishes: list[tuple[int, int]] = []  # heap: tick, id
        self.fresh: list[Job] = []  # decode from the next tick on; had no token at the last one
        self.last_tick_ns = NEVER
        self.outgrowing = 0
        self.steps: list[StepRecord] = []
        self.outcome: Literal["completed", "stalled", "max_steps"] = "completed"
        self.iterations = self.preemptions = self.taken = 0
        self.cached = 0  # tokens in the KV cache
        self.past = Past()
        self.watch = audit.Watch(
            stall_steps, tolerant=on_stall == "record", cut=max_steps is not None
        )
        self.arrived: list[int] = []  # since the last step, for its record
        self.rejected: list[int] = []  # turned away by the policy since then
        self.paused: dict[int, str] = {}  # reasons of plans since then that took no step

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
        now, past = self.view.clock_ns, copy.copy(self.past)
        for job in self.jobs.values():
            if job.after != NEVER:  # write it down as if it stopped here, and let it go on
                self.batch.look(job.request.id)
                job = copy.copy(job)
                job.stints = job.stints[:]
                self._end_stint(job)
            self._write_down(job, "unfinished")
            past.system_ns += now - job.arrived_ns
            if job.joined_ns != NEVER:
                past.add_stay(job, now)
        limited = self.kv.blocks is not None  # without a limit a reservation changes nothing
        return Result(
            policy=self.name,
            told_output_length=self.tell_output and (limited or not self.view.reserve_all),
            token_budget=self.token_budget,
            records=self.ledger,
            outcome=self.outcome,
            start_ns=self.start_ns,
            end_ns=now,
            steps=self.taken,
            engine_iterations=self.iterations,
            preemptions=self.preemptions,
            kv=self.kv,
            peak_blocks=self.pool.peak,
            block_ns=past.block_ns,
            token_ns=past.token_ns,
            promised_ns=past.promised_ns,
            claimed_ns=past.claimed_ns,
            running_ns=past.running_ns,
            system_ns=past.system_ns,
            step_records=self.steps,
        )

    def advance(self) -> bool:
        """Take a step, or several equal ones, or move the clock on. False when the run is over."""
        view, arrivals, pool = self.view, self.arrivals, self.pool
        if not self.jobs:
            if arrivals.next is None:
                return False
            self._jump_to_next_arrival()
        while arrivals.due_at <= (view.step if self.arrivals_by_step else view.clock_ns):
            self._admit()
        if not self.jobs:
            return True  # whoever came was turned away
        if self.max_steps is not None and self.taken >= self.max_steps:
            self.outcome = "max_steps"
            return False

        self.iterations += 1
        start = view.clock_ns
        view.free_blocks, view.holes = pool.free, pool.holes() if self.kv.contiguous else None
        view.more_to_come = arrivals.next is not None
        given = audit.given(view)
        answer = self._ask()
        audit.check_view(view, given)
        # Again, for the policy may have counted down in it.
        view.free_blocks, view.holes = pool.free, pool.holes() if self.kv.contiguous else None
        if self.outgrowing and isinstance(answer, Plan) and answer.decode_all:
            answer = self._spelled_out(answer)
        grants = audit.check(view, answer, self._look)
        assert isinstance(answer, Plan)
        plan = answer
        if plan.wait:
            self._note_pause(plan)
            self._jump_to_next_arrival()
            return True
        if plan.rejected:
            self._turn_away(plan.rejected)
            decoding = plan.decode_all and self.batch.decodes
            if not (plan.scheduled or plan.preempted or decoding):
                self._note_pause(plan)
                return True  # nothing is computed, so no time passes
        if self._take_step(plan, grants):
            self.watch.got_further()
        elif self.watch.stands_still(
            view, self.jobs.values(), plan, self.arrivals_by_step or view.clock_ns > start
        ):
            self.outcome = "stalled"
            return False
        return True

    def _note_pause(self, plan: Plan) -> None:
        """Keep the reasons of a plan that takes no step, for the record of the next one."""
        if self.record_steps:
            self.paused |= plan.reasons

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

    def _look(self, rid: int) -> Job | None:
        """Return a request in the system, brought up to date."""
        job = self.jobs.get(rid)
        if job is not None and job.after != NEVER:
            self.batch.look(rid)
        return job

    def _take_step(self, plan: Plan, singly: list[Grant]) -> bool:
        """Carry out a plan that has passed the audit. True if a request got further than ever."""
        start, free_before, batch = self.view.clock_ns, self.pool.free, self.batch
        if plan.preempted:
            self._preempt(plan.preempted)
        together = batch.decodes > 0
        if together and self.one_by_one:
            together, singly = False, [*self._decode_grants(plan), *singly]
        elif together and not plan.decode_all:
            together, singly = self._split(singly)
        may_repeat = plan.repeatable and self.skip and not (plan.preempted or plan.rejected)
        if may_repeat and together and not singly:
            return self._repeat(plan)

        may_repeat = may_repeat and (together or not batch.decodes)  # nobody is left out
        work = self._work(plan, together, singly)
        if plan.queue is not None:
            self.view.waiting = Queue(self.jobs[rid].progress for rid in plan.queue)
        price = self.price_ns(work)
        record = None
        if self.record_steps:
            record = self._record(plan, together, work, price, free_before)
            self.arrived, self.rejected, self.paused = [], [], {}
        self._pass_time(1, price)
        done = self._decode(Even(1, price)) if together else []
        further = together
        if singly:
            further |= self._give_tokens(singly, start, done)
        if record is not None:
            record.finished = [s.id for s in record.scheduled if s.id in done]
            record.free_blocks = (*record.free_blocks[:2], self.pool.free)
            self.steps.append(record)
        elif may_repeat and not done and not self.outgrowing and batch.decodes == batch.size:
            self._repeat(plan)
        return further

    def _decode_grants(self, plan: Plan) -> list[Grant]:
        """Return what ``decode_all`` gives to each: a token, and the block it may need."""
        decoding = [self.jobs[r.id] for r in self.batch if plan.decode_all and r.decoding]
        return [(job, 1, self.view.blocks_needed(job.progress, 1)) for job in decoding]

    def _split(self, grants: list[Grant]) -> tuple[bool, list[Grant]]:
        """Tell whether all that decode get a token, and return who is scheduled besides.

        A plan that names each of them says the same as ``decode_all``.
        """
        others = [grant for grant in grants if grant[0].after == NEVER]
        if len(grants) - len(others) < self.batch.decodes or self.outgrowing:
            return False, grants
        return True, others

    def _work(self, plan: Plan, together: bool, singly: list[Grant]) -> Work:
        """Take in who joins, buy the blocks for them, and add up what the step computes."""
        batch, view, padded = self.batch, self.view, plan.padded_prompt
        prefill = pairs = longest = strays = 0
        decodes, context = (batch.decodes, batch.context) if together else (0, 0)
        for job, tokens, blocks in singly:
            r = job.progress
            if job.joined_ns == NEVER:
                strays += self._join(job)
            elif job.after != NEVER:
                # It decodes on its own; from its next token on it may do so with the others.
                self._stop_decoding(job)
            if blocks:
                self.pool.take(r, blocks)
            computed = r.computed
            if r.prompt_len + r.produced - computed == 1 and r.produced:  # it decodes
                decodes += 1
                context += computed + 1
                continue
            if tokens < padded:
                tokens = padded
            prefill += tokens
            pairs += tokens * (tokens + 2 * computed)
            if tokens > longest:
                longest = tokens
        if strays:  # they did not come from the head of the queue
            view.waiting = Queue(r for r in view.waiting if not batch.has(r.id))
        return new_work((prefill, decodes + plan.idle_slots, context, pairs, longest))

    # -- time -------------------------------------------------------------------------------

    def _repeat(self, plan: Plan) -> bool:
        """Let everyone decode, step after step, until something happens. False if it is now.

        This is all of event skipping. The plan promised that nobody does anything else until
        somebody arrives, finishes (if that matters, as it does to those who wait) or finds no
        block. So many steps are taken without asking again; `Even` has the sums over them as
        closed forms. Without skipping every step and every token is taken on its own. That is
        the definition: both give the same result, digit for digit.
        """
        batch, view, further = self.batch, self.view, False
        until = NOT_DUE if self.arrivals_by_step else self.arrivals.due_at
        while batch.decodes and view.clock_ns < until:
            most = self.finishes[0][0] - batch.ticks
            if self.arrivals_by_step:
                most = min(most, self.arrivals.due_at - view.step)
            if self.max_steps is not None:
                most = min(most, self.max_steps - self.taken)
            most = batch.steps_within(self.pool.free, most)
            if most < 1:
                break
            work = new_work((0, batch.decodes + plan.idle_slots, batch.context, 0, 0))
            stretch = self._stretch(work, until - view.clock_ns, most)
            self._pass_time(stretch.steps, stretch.span)
            further = True
            if self._decode(stretch) and (view.waiting or not plan.until_arrival):
                break
        return further

    def _stretch(self, work: Work, gap: int, most: int) -> Even | Uneven:
        """Price decode steps in a row: until they fill the gap, or fewer."""
        price = self.price_ns(work)
        if self.growth_ns is not None:
            return Even.until(gap, price, self.growth_ns(self.batch.decodes), most)
        if self.prices_ns is not None:
            if price:
                most = min(most, gap // price + 1)  # none is cheaper than the first
            return Uneven.until(gap, self.prices_ns(work, self.batch.decodes, most))
        return Even(1, price)

    def _price(self, work: Work) -> int:
        """Ask a price list that is not ours: it may answer anything."""
        price = self.cost.price_ns(work)
        if type(price) is not int or price < 0:
            raise InputError(f"{self.cost!r} priced a step at {price!r}: not whole nanoseconds")
        return price

    def _pass_time(self, steps: int, span: int) -> None:
        """Let the time of so many steps pass."""
        view, past = self.view, self.past
        end = view.clock_ns + span
        if end > LATEST_NS:
            raise InputError(
                f"step {view.step} would end after {end} ns, and the clock ends at "
                f"{LATEST_NS} ns (292 years): lower the prices"
            )
        view.clock_ns = end
        view.step += steps
        self.taken += steps
        past.block_ns += (self.pool.size - self.pool.free) * span
        past.token_ns += self.cached * span

    def _decode(self, stretch: Even | Uneven) -> list[int]:
        """Give everyone who decodes a token in each of the steps that have just passed.

        Returns the ids of those who are done.
        """
        batch, past, steps = self.batch, self.past, stretch.steps
        n, start = batch.decodes, self.view.clock_ns - stretch.span
        self.cached += n * steps
        if steps > 1:
            past.token_ns += n * stretch.left_after_ends()
            for phase, blocks in batch.phases.items():
                first = -(phase + batch.ticks) % batch.block_size
                if first < steps:
                    times, left = stretch.left_from(first, batch.block_size)
                    self.pool.buy(times * blocks)
                    past.block_ns += blocks * left
        elif blocks := batch.blocks_to_decode:
            self.pool.buy(blocks)
            past.block_ns += blocks * stretch.span
        if self.fresh or start != self.last_tick_ns:
            self._log_first_gaps(start + stretch.price)
            stretch.write_gaps(self.log, 1, n)
        else:
            stretch.write_gaps(self.log, 0, n)
        batch.ticks += steps
        batch.context += n * steps
        self.last_tick_ns = self.view.clock_ns
        return self._finish_due() if self.finishes[0][0] <= batch.ticks else []

    def _log_first_gaps(self, end: int) -> None:
        """Note the gaps that tokens at the end of this step make, if not all are a step long."""
        own = 0
        for job in self.fresh:
            if job.after == self.batch.ticks:
                job.gap, job.after = end - job.last_token_ns, job.after + 1
                own += 1
        self.fresh.clear()
        self.log.extend(end - self.last_tick_ns, 0, 1, self.batch.decodes - own)

    def _finish_due(self) -> list[int]:
        """Let out those who had their last token at this tick."""
        done: list[int] = []
        finishes, ticks = self.finishes, self.batch.ticks
        while finishes and finishes[0][0] <= ticks:
            tick, rid = heappop(finishes)
            job = self.jobs.get(rid)
            if job is not None and job.done_at == tick and job.after != NEVER:
                self._leave(job, "finished")
                done.append(rid)
        return done

    # -- tokens of those who do not just decode ------------------------------------------------

    def _give_tokens(self, singly: list[Grant], start: int, done: list[int]) -> bool:
        """Advance each; sample where nothing is missing, and add the ids of those who are `done`.

        True if one of them got further than ever.
        """
        end, further, prefilled = self.view.clock_ns, False, 0
        for job, tokens, _ in singly:
            r = job.progress
            if job.first_scheduled_ns == NEVER:
                job.first_scheduled_ns = start
            missing = r.prompt_len + r.produced - r.computed
            computed = r.computed + tokens
            if self.stamp_inside_step and not r.decoding:
                prefilled += tokens
            write_computed(r, computed)
            self.cached += tokens
            if computed > job.best:
                job.best = computed
                further = True
            if tokens == missing:
                produced = r.produced + 1
                write_produced(r, produced)
                if job.first_token_ns == NEVER:
                    inside = self.stamp_inside_step
                    job.first_token_ns = start + self._prefill_ns(prefilled) if inside else end
                    job.last_token_ns = job.first_token_ns
                else:
                    here = self.batch.ticks
                    job.stints.append((end - job.last_token_ns, here, here))
                    job.last_token_ns = end
                if produced == job.target or r.total >= self.longest:
                    self._leave(job, "finished")
                    done.append(r.id)
                else:
                    self._start_decoding(job)
            elif r.decoding:  # computed again up to its last token
                self._start_decoding(job)
            self.watch.tokens += tokens
        return further

    def _start_decoding(self, job: Job) -> None:
        """Let a job advance with the others from the next tick on."""
        r, ticks = job.progress, self.batch.ticks
        if not self.batch.decodes:
            self.last_tick_ns = job.last_token_ns  # there is no other to tell apart from
        self.batch.start_decoding(r)
        job.after, job.gap = ticks, NEVER
        if self.one_by_one:
            return  # no tick will give it a token
        left = job.target - r.produced
        if self.longest < UNLIMITED:
            left = min(left, self.longest - r.total)
        job.done_at = ticks + left
        heappush(self.finishes, (job.done_at, r.id))
        if job.last_token_ns != self.last_tick_ns:
            self.fresh.append(job)

    def _stop_decoding(self, job: Job) -> None:
        """Bring a job up to date, and let it advance on its own."""
        self.batch.stop_decoding(job.request.id)
        self._end_stint(job)

    def _end_stint(self, job: Job) -> None:
        """Note when a job got its tokens that no longer decodes with the others."""
        if job.after != self.batch.ticks or job.gap != NEVER:
            job.stints.append((job.gap, job.after, self.batch.ticks))
            job.last_token_ns = self.last_tick_ns
        if job.progress.computed > job.best:
            job.best = job.progress.computed
        job.after = NEVER

    def _prefill_ns(self, tokens: int) -> int:
        price: Any = self.cost
        return int(price.prefill_ns(tokens))

    def _spelled_out(self, plan: Plan) -> Plan:
        """Name everyone that decodes: some of them have outgrown what they had reserved."""
        decodes = [(r.id, 1) for r in self.batch if r.decoding and r.id not in plan.preempted]
        return replace(plan, decode_all=False, scheduled=[*decodes, *plan.scheduled])

    # -- arrivals ---------------------------------------------------------------------------

    def _admit(self) -> None:
        """Put the request that has arrived into the queue, and look at the next one."""
        due_at, r = self.arrivals.due_at, self.arrivals.take()
        assert r is not None
        row = self.ledger.open()
        if self.never_fits == "reject" and self._shortage(r):
            self.ledger.write(row, r, "rejected")
            if self.on_done is not None:
                self.on_done(self.ledger[row])
            return
        predicted = self._prediction(r) if self.tell_output else None
        job = Job(
            r,
            new_progress(r, predicted),
            row,
            # It may have come in mid-step.
            self.view.clock_ns if self.arrivals_by_step else due_at,
            r.output_len + self.uncounted,
            self._final(r),
            r.prompt_len + predicted - 1 if predicted and self.view.reserve_all else 0,
        )
        self.jobs[r.id] = job
        self.view.waiting.append(job.progress)
        if self.record_steps:
            self.arrived.append(r.id)

    def _prediction(self, r: Request) -> int:
        """Return how many tokens a policy that may know it expects of a request."""
        target = r.output_len + self.uncounted
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
        return r.prompt_len + self._prediction(r) - 1 if self.view.reserve_all else 0

    def _final(self, r: Request) -> int:
        """Return the most tokens a request will have in the cache.

        The last token's keys and values are never needed. A first token that does not count
        makes one more.
        """
        whole = r.prompt_len + r.output_len + self.uncounted
        return (whole if whole < self.longest else self.longest) - 1

    def _jump_to_next_arrival(self) -> None:
        """Move the clock (or the step counter) to the next arrival; nothing is computed."""
        view, due_at = self.view, self.arrivals.due_at
        if self.arrivals_by_step:
            view.step = max(view.step, due_at)
        elif due_at > view.clock_ns:
            self.past.block_ns += self.pool.held * (due_at - view.clock_ns)
            self.past.token_ns += self.cached * (due_at - view.clock_ns)
            view.clock_ns = due_at

    def _shortage(self, r: Request) -> str:
        """Say why a request can never be served, or return nothing if it can."""
        need = blocks_for(max(self._final(r), self._claim(r)), self.kv.block_size)
        if need > self.kv.largest:
            side_by_side = " side by side" if self.kv.contiguous else ""
            return f"it needs {need} KV blocks and there are {self.kv.largest}{side_by_side}"
        return ""

    def _check_fits(self, request: Request) -> None:
        whole = request.prompt_len + request.output_len
        if whole <= self.kv.largest * self.kv.block_size and not self.tell_output:
            return  # the usual case, without a closer look
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
            write_computed(job.progress, 0)
            write_preemptions(job.progress, job.progress.preemptions + 1)
            self.view.waiting.appendleft(job.progress)
            self.preemptions += 1

    def _join(self, job: Job) -> bool:
        """Put a job at the end of the batch. True if it is not the head of the queue."""
        r, waiting = job.progress, self.view.waiting
        job.joined_ns = self.view.clock_ns
        if job.claim:
            self.outgrowing += job.claim < job.final
        self.batch.join(r)
        head = waiting.popleft()
        if head is not r:
            waiting.appendleft(head)
        return head is not r

    def _turn_away(self, ids: list[int]) -> None:
        """Let requests go that the policy does not want to serve."""
        for rid in ids:
            if self.record_steps:
                self.rejected.append(rid)
            self._leave(self.jobs[rid], "rejected")
        self.view.waiting = Queue(r for r in self.view.waiting if r.id in self.jobs)

    def _leave(self, job: Job, status: Status) -> None:
        """Let a job go for good."""
        if job.joined_ns != NEVER:
            self._release(job)
        del self.jobs[job.request.id]
        self._write_down(job, status)
        self.past.system_ns += self.view.clock_ns - job.arrived_ns
        if self.on_done is not None:
            self.on_done(self.ledger[job.row])

    def _release(self, job: Job) -> None:
        """Take a job out of the batch and its blocks back."""
        r = job.progress
        self.batch.leave(r.id)
        if job.after != NEVER:
            self._end_stint(job)
        self.past.add_stay(job, self.view.clock_ns)
        job.joined_ns = NEVER
        self.cached -= r.computed
        self.pool.give_back(r)
        if job.claim:
            self.outgrowing -= job.claim < job.final

    def _write_down(self, job: Job, status: Status) -> None:
        """Copy to the ledger what is known of a job."""
        r = job.progress
        self.ledger.write(
            job.row,
            job.request,
            status,
            job.first_scheduled_ns,
            job.first_token_ns,
            job.last_token_ns,
            r.produced - self.uncounted if r.produced else 0,
            r.preemptions,
            job.stints,
        )

    def _record(
        self, plan: Plan, together: bool, work: Work, price: int, free_before: int
    ) -> StepRecord:
        """Write down a step as it begins."""
        running = list(self.batch)
        decodes = [(r.id, 1) for r in running if r.decoding] if plan.decode_all else []
        scheduled = []
        for rid, tokens in (*decodes, *plan.scheduled):
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
            rejected=self.rejected,
            paused=self.paused,
            scheduled=scheduled,
        )


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


def _token_budget(policy: object) -> int | None:
    """Return how many tokens a step may hold, if the policy says so; vLLM has its own name."""
    names = ("token_budget", "max_num_batched_tokens")
    budgets = (_read(policy, name) for name in names)
    return next((b for b in budgets if type(b) is int and b > 0), None)


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
        Take equal steps at once where the plan allows it, and let all that decode advance
        together. False takes every step and every token on its own, which is the definition:
        the result is the same.
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
        Called with the `Record` of each request when it is finished or rejected; with those of
        one step in any order.

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
