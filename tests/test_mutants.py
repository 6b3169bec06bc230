"""The changes that `make mutation` tries the tests on."""

import fnmatch
import importlib
from pathlib import Path

import pytest

from tools import mutation
from tools.mutants import mutants


def changed(source):
    """Return what becomes of the line that is changed, for every mutant."""
    found = []
    for mutant in mutants(source):
        lines = mutant.apply(source).splitlines()
        assert len(lines) == len(source.splitlines())  # later lines keep their numbers
        found.append(lines[mutant.line - 1].strip())
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a - b", {"x = a + b"}),
        ("x = a < b <= c", {"x = a <= b <= c", "x = a < b < c"}),
        ("x = a is not b", {"x = a is b"}),
        ("x = not a", {"x = (a)"}),
        ("x = a and (b or c)", {"x = (a)", "x = (b or c)", "x = a and ((b))", "x = a and ((c))"}),
        ("x = 7", {"x = (8)", "x = (6)"}),
        ("x = True", {"x = False"}),
        ("x = 'é' + a", {"x = '' + a", "x = 'é' - a"}),
        ("x = max(a)", {"x = min(a)"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if (True)]"}),
        ("x = a if b else c", {"x = a if (True) else c", "x = a if (False) else c"}),
    ],
)
def test_what_is_changed_in_an_expression(line, expected):
    assert set(changed(line)) == expected


def test_what_is_changed_in_a_function():
    source = (
        "def f(a, b=2):\n"
        '    """Say nothing of 3."""\n'
        "    b += a\n"
        "    for x in a:\n"
        "        if x:\n"
        "            break\n"
        "    return g(\n"
        "        b,\n"
        "    )\n"
    )
    found = [(m.function, m.line, m.what) for m in mutants(source)]
    assert found == [
        (None, 1, "2 to 1"),
        (None, 1, "2 to 3"),
        ("f", 3, "left out"),
        ("f", 3, "+ to -"),
        ("f", 5, "always"),
        ("f", 5, "never"),
        ("f", 6, "break to continue"),
        ("f", 7, "returns None"),
    ]
    assert "return None\n\n\n" in mutants(source)[-1].apply(source)


@pytest.mark.parametrize(
    "line",
    [
        "import a1",
        "x: Literal['a']",
        "raise InputError('what', 'is', 'wrong')",
        "f'{a} of 3'",
        "', '.join",
        "__slots__ = ('a', 'b')",
        "@decorated(3)\nclass A(B): pass",
        "table = (1, 2, 3, 4, 5, 6, 7, 8, 9)",
    ],
)
def test_what_is_left_alone(line):
    assert changed(line) == []


def test_a_method_is_told_by_its_class():
    source = "class A:\n    n = 1\n    def f(self):\n        def g():\n            return 2\n"
    assert {(m.function, m.line) for m in mutants(source)} == {(None, 2), ("A.f", 5)}


def test_the_difference_is_shown():
    (mutant,) = mutants("a\nx = y + z\n")
    assert mutant.diff("a\nx = y + z\n", "m.py").splitlines()[-2:] == ["-x = y + z", "+x = y - z"]


# --- how they are tried


def test_a_mutant_is_put_into_the_function_that_others_have_imported(monkeypatch):
    from servesim.kv import blocks_for

    monkeypatch.setattr(blocks_for, "__code__", blocks_for.__code__)  # put back at the end
    assert blocks_for(17, 16) == 2
    trials = [t for t in mutation.trials_of("kv") if t.mutant.function == "blocks_for"]
    (trial,) = [t for t in trials if t.mutant.what == "// to *"]
    assert mutation.put_in(trial, mutation.functions())
    assert blocks_for(17, 16) == 17 * 16
    assert trial.key == "return -(-tokens // block_size) :: // to *"


def test_a_constant_of_a_module_cannot_be_put_in():
    default = next(t for t in mutation.trials_of("kv") if t.mutant.function is None)
    assert not mutation.put_in(default, mutation.functions())


@pytest.mark.parametrize(
    ("killed", "n", "low", "high"),
    [(81, 263, 25.53, 36.62), (15, 148, 6.24, 16.05), (0, 20, 0, 16.11), (29, 29, 88.3, 100)],
)
def test_the_interval_is_wilson_s(killed, n, low, high):
    """Against Newcombe (1998), Table I."""
    assert mutation.wilson(killed, n) == pytest.approx((low, high), abs=0.01)


def test_a_file_of_tests_is_about_the_core_unless_it_is_named():
    names = mutation.about_the_core()
    assert {"engine", "kv", "bookkeeping", "bad_input"} <= set(names)
    assert not {"browser", "figs_naive"} & set(names)
    files = [path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")]
    for pattern in mutation.AROUND:
        assert fnmatch.filter(files, pattern), f"no file is called {pattern}"
    for name, test in mutation.ONLY.items():
        assert hasattr(importlib.import_module(f"tests.test_{name}"), test)
