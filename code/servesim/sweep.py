"""Many runs at once: a grid of policies, workloads and prices, one row of figures each.

Everything is given as on the command line (see `servesim.spec`), so that a point of the grid is a
few words that can be sent to another process or another machine. The rows come in the order of
the grid whatever finishes first, and are the same on every run.

With an output file, finished points are kept beside it, in ``OUTPUT.points.jsonl``, each with a
digest of the simulator and of the files that it read. A sweep that was broken off goes on from
there. What has changed since is run again; a grid may grow, but a file that holds points of
another grid is refused.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from . import spec
from .checks import (
    at_least,
    file_name,
    flag,
    instance,
    list_of,
    maybe,
    one_of,
    text,
    whole_from,
)
from .engine import simulate
from .errors import InputError, PlanError, PolicyError
from .kv import KVCache
from .output import Bar, check_writable, whole_lines, write_whole

P = ParamSpec("P")
T = TypeVar("T")
Row: TypeAlias = dict[str, Any]

TRIES = 3
"""How often a point is started before its worker's death is put down to it."""

FIGURES = (
    *("told_output_length", "requests", "finished", "rejected"),
    *("makespan_s", "output_tokens", "throughput_tok_s"),
    *(
        f"{name}_{level}"
        for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
        for level in ("mean", "p50", "p90", "p95", "p99", "max")
    ),
    *("goodput_req_s", "attainment", "p99_within_slo", "preemptions", "steps"),
    *("engine_iterations", "mean_running", "peak_blocks", "mean_blocks"),
)


SHOWING = {
    "book",
    "cli",
    "drill",
    "evidence",
    "exercises",
    "explore",
    "figs",
    "lives",
    "output",
    "page",
    "plots",
    "predict",
    "stepper",
    "steps",
    "story",
    "studies",
    "svg",
    "table",
}
"""Modules that no figure depends on: to change them makes no row out of date."""


class Point(NamedTuple):
    """One run of the grid, in the command line's words; the first columns of its row."""

    policy: str
    workload: str
    cost: str
    kv_blocks: int | None
    slo: str | None
    block_size: int
    never_fits: str


COLUMNS = (*Point._fields, *FIGURES, "error")
"""Of a row. Figures that do not exist, and all figures of a point that failed, are None."""


def sweep(
    policies: str | Iterable[str],
    workloads: str | Iterable[str],
    costs: str | Iterable[str] = "opt-13b-a100",
    *,
    kv_blocks: int | Iterable[int | None] | None = None,
    slos: str | Iterable[str | None] | None = None,
    block_size: int = 16,
    never_fits: str = "error",
    out: str | Path | None = None,
    fresh: bool = False,
    executor: Executor | None = None,
    jobs: int | None = None,
) -> list[Row]:
    """Run every policy on every workload at every price, side by side.

    A script calls it below ``if __name__ == "__main__":``, because the processes that it starts
    read the script as well. A notebook can call it anywhere.

    Parameters
    ----------
    policies, workloads, costs : str or iterable of str
        As on the command line: ``"chunked:token_budget=512"``. Braces hold choices and make a
        grid of their own: ``"poisson:n=200,rate={1,2,4},seed={0,1}"``.
    kv_blocks : int or None, or iterable of them
        Blocks of KV memory; None for no limit.
    slos : str or None, or iterable of them
        Presets, or ``"ttft_ms=..,tpot_ms=.."``. Without one goodput and attainment are None.
    block_size : int
        Tokens in a block.
    never_fits : {"error", "reject"}
        Whether a request larger than the whole KV cache makes a point fail, or is counted.
    out : str or Path, optional
        Where the rows go at the end, complete or not at all: a file in .csv or .jsonl. Finished
        points are kept beside it and not run again.
    fresh : bool
        Forget the points that were kept.
    executor : concurrent.futures.Executor, optional
        Where the points run: threads, processes, or a cluster by Dask's ``Client.get_executor()``,
        whose workers must have this version of servesim and see the same files. It is not shut
        down. By default `jobs` processes, which end with the sweep.
    jobs : int, optional
        Number of processes; by default one for each core.

    Returns
    -------
    list of dict
        One row per point, with the keys `COLUMNS`; the last of the parameters varies fastest. A
        point that fails has a sentence in ``row["error"]`` and no figures. A point whose worker
        dies is started `TRIES` times in all.

    Raises
    ------
    InputError
        Before anything runs: if the grid is empty, names something unknown, or is not the one
        whose points were kept.
    PolicyError
        If a policy cannot be loaded.
    """
    points = grid(policies, workloads, costs, kv_blocks, slos, block_size, never_fits)
    check(points)
    made_with = {point: fingerprint(point) for point in points}
    flag(fresh=fresh)
    at_least(1, jobs=jobs)
    maybe(file_name, out=out)
    maybe(instance, Executor, executor=executor)
    jobs = min(jobs or os.cpu_count() or 1, len(points))
    with ExitStack() as stack:
        notes = None if out is None else stack.enter_context(_Notes(Path(out), made_with, fresh))
        rows = dict(notes.rows) if notes else {}
        bar = stack.enter_context(Bar(len(points), "sweep", "run", done=len(rows)))
        pool = stack.enter_context(Processes(jobs)) if executor is None else executor
        todo = [point for point in points if point not in rows]
        with closing(_rows(pool, todo, made_with, jobs, len(todo) if executor else jobs)) as run:
            for point, row, sure in run:
                rows[point] = row
                bar.update()
                if notes and sure:
                    notes.keep(row)
        ordered = [rows[point] for point in points]
        if out is not None:
            write_whole(Path(out), as_text(ordered, Path(out).suffix))
    return ordered


def grid(
    policies: str | Iterable[str],
    workloads: str | Iterable[str],
    costs: str | Iterable[str],
    kv_blocks: int | Iterable[int | None] | None,
    slos: str | Iterable[str | None] | None,
    block_size: int,
    never_fits: str,
) -> list[Point]:
    """Return every combination once, the last of them varying fastest."""
    axes = [
        _axis(text, policies=policies),
        _axis(text, workloads=workloads),
        _axis(text, costs=costs),
        _axis(partial(at_least, 1), kv_blocks=kv_blocks),
        _axis(partial(maybe, text), slos=slos),
        _axis(partial(whole_from, 1), block_size=block_size),
        _axis(text, never_fits=never_fits),
    ]
    return list(dict.fromkeys(itertools.starmap(Point, itertools.product(*axes))))


def _axis(check: Callable[..., None], **option: Any) -> list[Any]:
    """Return the values of one option: it may be one, or several, and hold choices in braces."""
    ((name, given),) = option.items()
    one = isinstance(given, str | bytes) or not isinstance(given, Iterable)
    values = [given] if one else list(given)
    if not values:
        raise InputError(f"the grid is empty: give {name} at least one value")
    for value in values:
        check(**{name: value})
    return [x for v in values for x in (spec.expand(v) if isinstance(v, str) else [v])]


def check(points: Sequence[Point]) -> None:
    """Refuse a grid that names something unknown.

    Raises
    ------
    InputError, PolicyError
    """
    policies, workloads, costs, blocks, slos, sizes, rules = (
        dict.fromkeys(column) for column in zip(*points, strict=True)
    )
    for never_fits in rules:
        spec.choose("never_fits", never_fits, {"error": None, "reject": None})
    for number, size in itertools.product(blocks, sizes):
        KVCache(number, size)
    for build, texts in (
        (spec.policy, policies),
        (spec.prices, costs),
        (spec.slo, (slo for slo in slos if slo is not None)),
        (spec.requests, workloads),
    ):
        for one in texts:
            build(one)


# -- one point ----------------------------------------------------------------------------------


def _run(point: Point, made_with: str, attempt: int) -> Row:
    """Run a point, on whichever machine this is.

    `attempt` makes another task of it each time: Dask answers for the same one from memory.
    """
    if fingerprint(point) != made_with:
        raise InputError(
            f"a worker that was to run {point.policy!r} on {point.workload!r} has another version "
            "of servesim, or of a file named there, than the sweep was started with"
        )
    try:
        result = simulate(
            spec.requests(point.workload),
            spec.policy(point.policy),
            cost=spec.prices(point.cost),
            kv=KVCache(point.kv_blocks, point.block_size),
            never_fits=point.never_fits,  # type: ignore[arg-type]
        )
        summary = result.summary(None if point.slo is None else spec.slo(point.slo))
    except Exception as error:  # one bad point must not cost the others
        return _row(point, error=_told(error))
    flat = {**summary, **summary["kv"]}
    for name, value in summary.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{level}": figure for level, figure in value.items()}
    return _row(point, **{name: flat[name] for name in FIGURES})


def _row(point: Point, **figures: Any) -> Row:
    return {**dict.fromkeys(COLUMNS), **point._asdict(), **figures}


def _told(error: Exception) -> str:
    ours = isinstance(error, InputError | PlanError | PolicyError)
    return str(error) if ours else f"{type(error).__name__}: {error}"


def fingerprint(point: Point) -> str:
    """Return a digest of what a row depends on besides its point.

    That is the simulator's source (but for `SHOWING`), and the files that the policy and the
    workload name (but not what these files import in turn).
    """
    digest = hashlib.sha256(simulator_digest())
    for file in filter(None, (spec.file_in(point.policy), spec.file_in(point.workload))):
        try:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        except OSError as error:
            raise InputError(f"{file}: {error.strerror or error}") from None
    return digest.hexdigest()[:16]


@functools.cache
def simulator_digest() -> bytes:
    """Return a digest of the simulator's source, but for `SHOWING`."""
    return b"".join(hashlib.sha256(p.read_bytes()).digest() for p in simulator_sources())


def simulator_sources() -> list[Path]:
    """Return the files of the simulator, but for the modules and packages of `SHOWING`."""
    home = Path(__file__).parent
    files = sorted(home.rglob("*.py"))
    return [p for p in files if p.relative_to(home).with_suffix("").parts[0] not in SHOWING]


# -- all of them --------------------------------------------------------------------------------


def _rows(
    pool: Executor, todo: list[Point], made_with: dict[Point, str], jobs: int, at_once: int
) -> Generator[tuple[Point, Row, bool], None, None]:
    """Yield each point with its row, and whether the row is sure to be the same next time."""
    lost: dict[Point, Exception] = {}
    some = False
    for attempt in range(TRIES):
        lost.clear()
        work = [(point, made_with[point], attempt) for point in todo]
        # Those that lost their worker are tried again one at a time: if one of them kills its
        # worker, it takes nobody along.
        with closing(_as_they_finish(pool, work, 1 if attempt else at_once)) as finished:
            for point, outcome in finished:
                if isinstance(outcome, Exception):
                    lost[point] = outcome
                    if not some and len(lost) > TRIES * jobs:
                        raise InputError(f"no worker can run anything: {_told(outcome)}")
                else:
                    some = True
                    yield point, outcome, True
        todo = list(lost)
    for point, error in lost.items():
        why = f"its worker was lost {TRIES} times: {_told(error)}"
        yield point, _row(point, error=why), False


def _as_they_finish(
    pool: Executor, work: Iterable[tuple[Point, str, int]], at_once: int
) -> Generator[tuple[Point, Row | Exception], None, None]:
    """Run points, so many at once; yield each with its row, or with what its executor raised."""
    todo, done = iter(work), SimpleQueue[Future[Row]]()
    running: dict[Future[Row], Point] = {}
    try:
        while True:
            for args in itertools.islice(todo, at_once - len(running)):
                try:
                    future = pool.submit(_run, *args)
                except RuntimeError as error:
                    raise InputError(f"the executor takes no more work: {error}") from None
                running[future] = args[0]
                future.add_done_callback(done.put)
            if not running:
                return
            future = done.get()
            yield running.pop(future), _outcome(future)
    finally:
        for future in running:
            future.cancel()


def _outcome(future: Future[Row]) -> Row | Exception:
    try:
        return future.result()
    except InputError:
        raise
    except Exception as error:
        return error


class Processes(Executor):
    """A pool of processes that is mended when one of them dies, and that leaves none behind.

    Each process holds one end of a pipe and ends when the other end is closed: by us when the
    sweep is broken off, by the system when we die. Ctrl-C is for us alone to hear.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._context = multiprocessing.get_context("spawn")
        self._theirs, self._ours = self._context.Pipe(duplex=False)
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._jobs, self._context, _end_with, (self._theirs,))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in one of the processes; a broken pool is replaced first."""
        before = None
        if hasattr(signal, "pthread_sigmask"):  # a process is born as deaf as its parent
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._pool.shutdown()
            self._pool = self._new_pool()
            return self._pool.submit(fn, *args, **kwargs)
        finally:
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            self._ours.close()
        self._pool.shutdown(cancel_futures=True)
        self._ours.close()
        self._theirs.close()


def _end_with(pipe: Connection) -> None:
    """Make this process end when the other end of the pipe is closed."""

    def wait() -> None:
        try:
            pipe.recv()
        except (EOFError, OSError):
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=wait, daemon=True).start()


# -- files --------------------------------------------------------------------------------------


class _Notes:
    """The finished points of a sweep, kept beside its output as they finish: one line each."""

    def __init__(self, out: Path, made_with: dict[Point, str], fresh: bool) -> None:
        if out.suffix not in WRITERS:
            raise InputError(f"output {out}: a file of rows ends in {' or '.join(WRITERS)}")
        named = {name for point in made_with for name in (point.policy, point.workload)}
        check_writable(out, "output", map(spec.file_in, named))
        self._file = out.with_name(out.name + ".points.jsonl")
        self._made_with = made_with
        try:
            if fresh:
                self._file.unlink(missing_ok=True)
            self.rows = dict(self._read())
            self._lines = self._file.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise InputError(f"{self._file}: {error.strerror or error}") from None

    def _read(self) -> Iterator[tuple[Point, Row]]:
        for number, line in enumerate(whole_lines(self._file), 1):
            try:
                note = json.loads(line)
                row, made_with = note["row"], note["made_with"]
                point = Point(**{name: row[name] for name in Point._fields})
                plain = all(isinstance(v, str | int | float | None) for v in row.values())
                known = point in self._made_with and plain and row.keys() == set(COLUMNS)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                known = False
            if not known:
                raise InputError(
                    f"{self._file}, line {number}: not a point of this grid; name another output, "
                    "or forget what was kept (fresh=True, --fresh)"
                )
            if made_with == self._made_with[point]:
                yield point, row

    def keep(self, row: Row) -> None:
        """Write down a finished point."""
        point = Point(*(row[name] for name in Point._fields))
        try:
            print(json.dumps({"made_with": self._made_with[point], "row": row}), file=self._lines)
            self._lines.flush()
        except OSError as error:
            raise InputError(f"{self._file}: {error.strerror or error}") from None

    def __enter__(self) -> _Notes:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):  # what could not be written would be tried once more
            self._lines.close()


def as_text(rows: Sequence[Row], suffix: str) -> str:
    """Return rows as the text of a file with this suffix: .csv or .jsonl."""
    one_of(tuple(WRITERS), suffix=suffix)
    return WRITERS[suffix](list_of(dict, "rows", rows))


def _csv(rows: Sequence[Row]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _jsonl(rows: Sequence[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


WRITERS: dict[str, Callable[[Sequence[Row]], str]] = {".csv": _csv, ".jsonl": _jsonl}
