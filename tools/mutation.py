"""Do the tests notice? Change the core in one place at a time and run them: `make mutation`.

A mutant is killed if a test fails (or never ends), and survives if none does. The tests are
collected once. Each mutant is a forked process in which one function has been given the code of
the changed source; it runs the tests that reach the changed line, quick ones first, until one
fails. For what acts on import (a constant, a default) it imports package and tests anew.

Why not a tool that exists? mutmut changes no function with a decorator, and here every figure of a
run is a property. cosmic-ray starts a process with all its imports for each mutant.

The exit status is 1 if a module in `MUST` scores below `LEAST`. Every survivor is written to
`_build/mutation/MODULE.diff`. One that cannot change any behavior may be listed in
`tools/equivalent.toml`, with the reason; the table counts those apart. If time runs out, those
that were tried are a random sample, and the table says how sure the score is.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import coverage
import pytest

import servesim
from tools.mutants import Mutant, mutants

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "code" / "servesim"
OUT = ROOT / "_build" / "mutation"

MUST = ("engine", "kv", "policies", "metrics", "cost", "workload")
ALSO = (
    *("request", "batch", "job", "ledger", "stretch", "runs", "audit", "plan"),
    *("arrivals", "bound", "capacity", "checks"),
)
LEAST = 90  # percent

AROUND = (
    *("assignments", "browser", "bundle", "chapters", "cli", "corners", "csp", "exercises"),
    *("explore", "figs_*", "grade_*", "instructors", "licenses", "lite_text", "live_figures"),
    *("mutants", "nbval_hook", "notebooks", "own_policy", "page", "pdf", "plots", "predict"),
    *("project", "prose", "sameness", "studies", "svg", "sweep", "validation", "widgets"),
)
"""Files of `tests/` that are about what lies around the core, or start other processes."""

ONLY = {
    "bad_input": "test_an_option_is_right_or_told",
    "vllm_rules": "test_the_policy_does_what_was_worked_out_by_hand",
}
"""Files of which one test is about the core."""

SURE = 15.0  # seconds of tests per mutant: the quickest that reach it
SLOW = 5.0  # seconds; a test that takes longer is left out
MEMORY = 4 << 30  # bytes; a mutant may fill a list without end

NOT_PUT_IN, SOME_TEST = -1, -2
TOO_LONG = signal.SIGVTALRM, signal.SIGXCPU, signal.SIGKILL
KILLED, SURVIVED, ENDLESS = "killed", "survived", "timeout"


class Trial(NamedTuple):
    """A mutant, with where it is and what may be said about it."""

    module: str
    path: Path
    source: str
    mutant: Mutant

    @property
    def key(self) -> str:
        """The line and what is done to it, as in the list of equivalent mutants."""
        return f"{self.source.splitlines()[self.mutant.line - 1].strip()} :: {self.mutant.what}"


def about_the_core() -> list[str]:
    """Return the names of the files of `tests/` that are about the core: whatever is not around."""
    names = [file.stem.removeprefix("test_") for file in (ROOT / "tests").glob("test_*.py")]
    return sorted(n for n in names if not any(fnmatch(n, pattern) for pattern in AROUND))


def tests_of(name: str) -> str:
    """Return what to call for a file of tests: all of it, or the one test that counts."""
    return f"tests/test_{name}.py" + (f"::{ONLY[name]}" if name in ONLY else "")


def trials_of(module: str) -> list[Trial]:
    """Return every mutant of a module, or of all modules of a package."""
    path = PACKAGE / module
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return [
        Trial(module, file, source, mutant)
        for file in files
        for source in [file.read_text(encoding="utf-8")]
        for mutant in mutants(source)
    ]


# -- in the process of one mutant ---------------------------------------------------------------


def functions() -> dict[tuple[str, str], list[FunctionType]]:
    """Return all functions of the package by file and qualified name."""
    found = defaultdict(list)
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(PACKAGE)):
            found[thing.__code__.co_filename, thing.__code__.co_qualname].append(thing)
    return found


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all within it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes(const)


def put_in(trial: Trial, live: dict[tuple[str, str], list[FunctionType]]) -> bool:
    """Give the mutant's code to the function it is in; False if that is not possible."""
    path, name = str(trial.path), trial.mutant.function
    if name is None or not live.get((path, name)):
        return False
    changed = compile(trial.mutant.apply(trial.source), path, "exec", dont_inherit=True)
    (code,) = (c for c in codes(changed) if c.co_qualname == name)
    for function in live[path, name]:
        try:
            function.__code__ = code
        except ValueError:  # it closes over other variables than before
            return False
    return True


def run(items: list[pytest.Item], seconds: dict[str, float]) -> int | None:
    """Run tests until one fails, and return which; a test that hangs ends the process."""
    for index, item in enumerate(items):
        following = items[index + 1] if index + 1 < len(items) else None
        signal.setitimer(signal.ITIMER_VIRTUAL, 1 + 10 * seconds[item.nodeid])
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            return index
    return None


def run_afresh(trial: Trial, items: list[pytest.Item], folder: Path) -> int | None:
    """Import a changed copy of the package, and the tests once more, and run them."""
    package = shutil.copytree(PACKAGE, folder / "servesim", dirs_exist_ok=True)
    place = package / trial.path.relative_to(PACKAGE)
    place.write_text(trial.mutant.apply(trial.source), encoding="utf-8")
    for name in [n for n in sys.modules if n.partition(".")[0] in ("servesim", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    status = pytest.main([*OPTIONS, "-x", *(item.nodeid for item in items)])
    return None if status == 0 else SOME_TEST


def in_child(work: Callable[[], Any], cpu: float = math.inf) -> tuple[int, int]:
    """Start a process for some work; return its id and where its answer can be read."""
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        return child, read
    status = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if cpu < math.inf:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu), math.ceil(cpu) + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        answer = pickle.dumps(work())
        with os.fdopen(write, "wb") as pipe:
            pipe.write(answer)
        status = 0
    finally:
        os._exit(status)


# -- in the process that collects ---------------------------------------------------------------

OPTIONS = (
    "-q",
    "--assert=plain",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "--hypothesis-profile=mutation",
)


class Plugin:
    """Runs mutants where pytest would run tests."""

    def __init__(self, trials: list[Trial], workers: int, until: float) -> None:
        self.trials, self.workers, self.until = trials, workers, until
        self.fates: dict[Trial, str] = {}
        self.trouble = "pytest did not come to the tests"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure the tests, then try every mutant."""
        if session.testsfailed:
            self.trouble = "some tests cannot be collected"
            return True
        self.live = functions()
        gc.freeze()  # so that a fork shares what there is
        session.config.pluginmanager.unregister(name="terminalreporter")
        child, answer = in_child(lambda: self.measure(session.items))
        with os.fdopen(answer, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        failed, self.seconds, self.reached = pickle.loads(told) if told else ("?", {}, {})
        if failed is not None:
            self.trouble = f"the test {failed} fails without any change"
            return True
        self.items = {item.nodeid: item for item in session.items}
        self.wins: dict[tuple[Path, str | None, str], int] = defaultdict(int)
        nothing = self.trials[0]._replace(mutant=Mutant(None, 0, 1, "nothing", 0, 0, ""))
        with tempfile.TemporaryDirectory() as folder:
            self.try_all(Path(folder), [nothing])
            if self.fates.pop(nothing) == SURVIVED:
                self.trouble = ""
                self.try_all(Path(folder), self.trials)
            else:
                self.trouble = "the tests fail on an unchanged copy of the package"
        return True

    def measure(self, items: list[pytest.Item]) -> Any:
        """Return a test that fails, if any, each test's seconds, and which tests reach a line."""
        cover = coverage.Coverage(data_file=None, include=[f"{PACKAGE}/*"], config_file=False)
        seconds: dict[str, float] = {}
        cover.start()
        for index, item in enumerate(items):
            cover.switch_context(item.nodeid)
            start = time.process_time()
            following = items[index + 1] if index + 1 < len(items) else None
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = time.process_time() - start
            if item.session.testsfailed:
                return item.nodeid, {}, {}
        cover.stop()
        data = cover.get_data()
        return None, seconds, {f: data.contexts_by_lineno(f) for f in data.measured_files()}

    def chosen(self, trial: Trial) -> tuple[bool, list[pytest.Item]]:
        """Return whether to import anew, and the tests that may see the mutant, best ones first."""
        lines = self.reached.get(str(trial.path), {})
        mutant, names = trial.mutant, set()
        if mutant.function is not None:
            # A line within a long statement may not be told of; the one before it is.
            near = (n for n in range(mutant.line, mutant.top, -1) if any(lines.get(n, ())))
            names = set(lines.get(next(near, 0), ())) - {""}
        afresh = not names
        if afresh:  # it acts on import, and any test that is about this file may see it
            files = {name.partition("::")[0] for found in lines.values() for name in found}
            names = {name for name in self.items if name.partition("::")[0] in files}
            names = names or set(self.items)  # the file has no function at all

        def rank(name: str) -> tuple[bool, bool, float, str]:
            own = f"test_{trial.module}.py" in name
            general = "test_bad_input.py" in name  # a table of everything: quick, and says little
            won = self.wins[trial.path, mutant.function, name]
            return general, afresh and not own, self.seconds[name] / (1 + won), name

        spent, chosen = 0.0, []
        for name in sorted(names, key=rank):
            if self.seconds[name] <= SLOW and spent + self.seconds[name] <= SURE:
                spent += self.seconds[name]
                chosen.append(self.items[name])
        return afresh, chosen

    def try_all(self, folder: Path, trials: list[Trial]) -> None:
        """Try every mutant, several side by side."""
        waiting = trials[::-1]
        not_put_in: set[Trial] = set()
        places = [folder / str(i) for i in range(self.workers)]
        running: dict[int, tuple[Trial, list[pytest.Item], int, Path]] = {}
        while waiting or running:
            while waiting and places:
                if time.monotonic() > self.until:
                    waiting.clear()
                    break
                trial, place = waiting.pop(), places.pop()
                afresh, items = self.chosen(trial)
                afresh |= trial in not_put_in
                child, answer = self.start(trial, afresh, items, place)
                running[child] = trial, items, answer, place
            if not running:
                break
            child, status = os.wait()
            trial, items, answer, place = running.pop(child)
            places.append(place)
            with os.fdopen(answer, "rb") as pipe:
                told = pipe.read()
            failed = pickle.loads(told) if told else None
            if failed == NOT_PUT_IN:
                not_put_in.add(trial)
                waiting.append(trial)
                continue
            if failed is not None and failed >= 0:
                self.wins[trial.path, trial.mutant.function, items[failed].nodeid] += 1
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) in TOO_LONG:
                self.fates[trial] = ENDLESS
            else:
                self.fates[trial] = SURVIVED if status == 0 and failed is None else KILLED
            self.tell()

    def start(
        self, trial: Trial, afresh: bool, items: list[pytest.Item], place: Path
    ) -> tuple[int, int]:
        """Start a mutant's process. It answers with the number of the test that failed, if any."""

        def work() -> Any:
            if not items:
                return None
            if afresh:
                return run_afresh(trial, items, place)
            return run(items, self.seconds) if put_in(trial, self.live) else NOT_PUT_IN

        return in_child(work, cpu=10 + 3 * sum(self.seconds[item.nodeid] for item in items))

    def tell(self) -> None:
        """Show how far it is, on a terminal."""
        if sys.stderr.isatty() or len(self.fates) % 100 == 0:
            done, alive = len(self.fates), sum(f == SURVIVED for f in self.fates.values())
            print(f"\r{done}/{len(self.trials)}, {alive} survive ", end="", file=sys.stderr)


# -- the report ---------------------------------------------------------------------------------


def wilson(killed: int, n: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, in percent (Wilson, 1927)."""
    z, p = 1.96, killed / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return tuple(100 * (middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))  # type: ignore[return-value]


def report(trials: list[Trial], fates: dict[Trial, str], whole: dict[str, int]) -> bool:
    """Print the table, write the survivors, and tell whether the score is high enough."""
    listed: dict[str, dict[str, str]] = tomllib.loads(
        (ROOT / "tools" / "equivalent.toml").read_text(encoding="utf-8")
    )
    OUT.mkdir(parents=True, exist_ok=True)
    print(f"{'module':<12}{'mutants':>8}{'killed':>8}{'timeout':>9}{'equivalent':>12}", end="")
    print(f"{'survived':>10}{'score':>9}")
    good = True
    for module in whole:
        mine = [trial for trial in trials if trial.module == module]
        alive = [trial for trial in mine if fates[trial] == SURVIVED]
        known = listed.get(module, {})
        dead = {trial.key for trial in mine} - {trial.key for trial in alive}
        gone = known.keys() - {trial.key for trial in trials_of(module)}
        for key in sorted(known.keys() & dead | gone):
            print(f"tools/equivalent.toml: no such mutant of {module} survives: {key!r}")
            good = False
        survivors = [trial for trial in alive if trial.key not in known]
        counted = len(mine) - len(alive) + len(survivors)
        endless = sum(fates[trial] == ENDLESS for trial in mine)
        score = 100 * (1 - len(survivors) / counted) if counted else 0.0
        print(
            f"{module:<12}{len(mine):>8}{counted - len(survivors) - endless:>8}{endless:>9}", end=""
        )
        print(f"{len(alive) - len(survivors):>12}{len(survivors):>10}{score:>8.1f}%", end="")
        if len(mine) < whole[module] and counted:
            low, high = wilson(counted - len(survivors), counted)
            print(f"  (of {whole[module]}; 95 % sure from {low:.1f} to {high:.1f})", end="")
        print()
        good &= module not in MUST or score >= LEAST
        survivors.sort(key=lambda trial: (trial.path, trial.mutant.start))
        text = "\n\n".join(
            f"# {trial.key}\n{trial.mutant.diff(trial.source, str(trial.path.relative_to(ROOT)))}"
            for trial in survivors
        )
        (OUT / f"{module}.diff").write_text(text + "\n" * bool(text), encoding="utf-8")
    print(f"Survivors are in {OUT.relative_to(ROOT)}/.")
    return good


def main(argv: list[str] | None = None) -> int:
    """Try mutants and report."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="all that count if not given")
    parser.add_argument("--again", action="store_true", help="only those that survived last time")
    parser.add_argument("--minutes", type=float, default=60, metavar="N", help="stop then (60)")
    parser.add_argument("--lines", metavar="A-B", help="only those that start in these lines")
    parser.add_argument("--tests", nargs="+", metavar="NAME", help="only tests/test_NAME.py")
    parser.add_argument("--seed", type=int, default=0, help="of the order (0)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N")
    options = parser.parse_args(argv)
    names = options.modules or [*MUST, *ALSO]
    for name in names:
        if not (PACKAGE / name).is_dir() and not (PACKAGE / f"{name}.py").is_file():
            parser.error(f"no module {name} in {PACKAGE.relative_to(ROOT)}")
    if Path(servesim.__file__ or "").parent != PACKAGE:
        parser.error(f"servesim is imported from elsewhere; set PYTHONPATH to {PACKAGE.parent}")
    trials, whole = [], {}
    for name in names:
        found = trials_of(name)
        if options.lines:
            low, high = map(int, options.lines.split("-"))
            found = [trial for trial in found if low <= trial.mutant.line <= high]
        if options.again:
            last = set((OUT / f"{name}.diff").read_text(encoding="utf-8").splitlines())
            found = [trial for trial in found if f"# {trial.key}" in last]
        whole[name] = len(found)
        trials += found
    start = time.monotonic()
    # In any order, so that those that were tried when time is up are a fair sample.
    random.Random(options.seed).shuffle(trials)
    plugin = Plugin(trials, options.workers, start + 60 * options.minutes)
    os.chdir(ROOT)
    tests = [tests_of(name) for name in options.tests or about_the_core()]
    with contextlib.redirect_stdout(sys.stderr):
        pytest.main([*OPTIONS, *tests], plugins=[plugin])
    if plugin.trouble:
        print(f"No mutant was tried: {plugin.trouble}.")
        return 2
    good = report([trial for trial in trials if trial in plugin.fates], plugin.fates, whole)
    print(f"{len(plugin.fates)} mutants took {(time.monotonic() - start) / 60:.0f} minutes.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
