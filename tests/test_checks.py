"""Checks: what an option may be, and the sentence for what it may not."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

import servesim as ss
from servesim import checks
from servesim.checks import MOST

NAN, HUGE = float("nan"), 10**5000
least_2, from_2, from_2_to_5 = (
    partial(checks.whole_from, 2),
    partial(checks.number_from, 2),
    partial(checks.number_from, 2, 5),
)
fruit = partial(checks.one_of, ("apple", "pear"))
named_fruit = partial(checks.one_of, {"apple": 1, "pear": 2})
runs = partial(checks.method, "plan")
maybe_least_2 = partial(checks.at_least, 2)
requests = partial(checks.instance, ss.Request)


@pytest.mark.parametrize(
    ("check", "good", "bad", "says"),
    [
        (least_2, (2, 3, MOST), (1, 0, -2, 2.0, True, "2", None), "a whole number, 2 or more"),
        (least_2, (), (MOST + 1, HUGE), f"a whole number up to {MOST}"),
        (maybe_least_2, (2, MOST, None), (1, 2.0, True, "2"), "a whole number, 2 or more"),
        (from_2, (2, 2.0, 3.5, MOST), (1.9, -2, NAN, math.inf, True, "2"), "a number, 2 or more"),
        (from_2, (), (MOST + 1, 1e16), "a number up to 1e+15"),
        (partial(checks.number_from, 0), (0, 0.0, 1), (-1, True, False), "a number, 0 or more"),
        (from_2_to_5, (2, 5.0), (5.1, 6, MOST), "a number up to 5"),
        (checks.seed_number, (0, -(2**63), 2**63 - 1), (), ""),
        (checks.seed_number, (), (-(2**63) - 1, 2**63, 1.0, True, "1", None), "a whole number of"),
        (checks.share, (0, 0.5, 0.999), (-0.1, -1, 1, 1.0, NAN, True, "0", None), "a share from 0"),
        (fruit, ("apple", "pear"), ("plum", "", "app", None, ["apple"]), "apple or pear"),
        (named_fruit, ("apple", "pear"), ("plum", ["apple"], {}, None), "apple or pear"),
        (checks.flag, (True, False), (0, 1, "no", None), "True or False"),
        (requests, (ss.Request(0, 0, 1, 1),), (0, ss.Request, None), "of class servesim.request.R"),
        (partial(checks.instance, int), (4,), ("4", None), "of class int"),
        (partial(checks.instance, (int, str)), (4, "4"), (4.0, None), "of class int or str"),
        (checks.text, ("", "no"), (b"", 0, None, ["a"]), "text"),
        (checks.function, (print, lambda: 0, dict), ("print", None, 3), "a function"),
        (runs, (ss.policies.Naive(),), (ss.policies.Naive, None, print), "an object with a method"),
        (partial(checks.maybe, least_2), (None, 2), (1, "2"), "a whole number, 2 or more"),
        (partial(checks.maybe, checks.flag), (None, True), (1, "no"), "True or False"),
    ],
)
def test_an_option_is_what_it_must_be_or_a_sentence_says_so(check, good, bad, says):
    for value in good:
        check(size=value)
    check(**{f"option{i}": value for i, value in enumerate(good)})
    for value in bad:
        with pytest.raises(ss.InputError) as caught:
            check(**dict.fromkeys(["a", "b"][: len(good)], *good[:1]), size=value)
        sentence = str(caught.value)
        assert sentence.startswith(f"size must be {says}"), sentence
        assert f", not {ss.errors.brief(value)}" in sentence


@pytest.mark.parametrize("name", ["results.json", "no such folder/file", "", "x" * 200])
def test_a_file_may_have_this_name(name, tmp_path):
    checks.file_name(out=name)
    checks.file_name(out=tmp_path / name)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, 4, None, b"results.json", ["a"]])
def test_a_file_cannot_have_this_name(name):
    with pytest.raises(ss.InputError, match=r"^out must name a file, and .* cannot$"):
        checks.file_name(out=name)
    with pytest.raises(ss.InputError, match="out must name a file"):
        checks.file_name(log=os.devnull, out=name)


def test_a_list_holds_what_it_must():
    numbers = partial(checks.list_of, int, "sizes")
    for values in ([], [1, 2], (1, 2), iter([1, 2]), {1: 3, 2: 4}, range(1, 3)):
        assert numbers(values) in ([], [1, 2])
    assert checks.list_of((int, str), "sizes", [1, "2"]) == [1, "2"]
    for wrong in (4, None, "12", b"12"):
        with pytest.raises(ss.InputError, match=r"^sizes must be a list of int objects, not "):
            numbers(wrong)
    with pytest.raises(ss.InputError, match=r"^sizes must hold int objects only, not '2'$"):
        numbers([1, "2"])
    with pytest.raises(ss.InputError, match=r"^sizes must hold int or str objects only, not 2\.5$"):
        checks.list_of((int, str), "sizes", [1, "2", 2.5])


@dataclass
class Options:
    flag: "bool" = False
    name: "str" = "x"
    size: "int" = 0
    share: "float" = 0.0
    names: "tuple[str, ...]" = ()
    act: "Callable[[int], str]" = str
    maybe_size: "int | None" = None
    maybe_names: "tuple[str, ...] | None" = None
    maybe_act: "Callable[[int], str] | None" = None
    pair: "tuple[int, str]" = (0, "x")
    other: "list[int]" = ()


@pytest.mark.parametrize(
    ("field", "good", "bad", "says"),
    [
        ("flag", (True,), (1, None, "no"), "be True or False"),
        ("name", ("", "y"), (1, None, b"x"), "be text"),
        ("size", (0, 7), (-1, 1.5, None, True, "1"), "be a whole number, 0 or more"),
        ("share", (0, 0.5, 7), (-0.5, None, NAN, "1"), "be a number, 0 or more"),
        ("names", ((), ("a",), ["a"]), (None, "a", 4), "be a list of str objects"),
        ("names", (), (("a", 4),), "hold str objects only"),
        ("act", (print,), (None, "print"), "be a function"),
        ("maybe_size", (None, 0), (-1, 1.5, "1"), "be a whole number, 0 or more"),
        ("maybe_names", (None, ("a",)), ("a", 4), "be a list of str objects"),
        ("maybe_act", (None, print), ("print",), "be a function"),
        ("pair", ((1, "y"), None, 4), (), ""),
        ("other", ([1], None, 4), (), ""),
    ],
)
def test_a_record_s_fields_are_what_their_annotations_say(field, good, bad, says):
    for value in good:
        checks.by_annotation(Options(**{field: value}))
    for value in bad:
        with pytest.raises(ss.InputError, match=f"^{field} must {says}"):
            checks.by_annotation(Options(**{field: value}))
