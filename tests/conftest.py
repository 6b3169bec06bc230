"""What all tests share."""

import os
import unittest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

LONGER = 20  # times as many examples with --long

# No deadline: a busy machine is not a bug. In CI the same examples every time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
# For `make mutation`: whether a property fails, and not on which example.
settings.register_profile(
    "mutation",
    max_examples=30,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    derandomize=True,
    database=None,
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the browser's tests be pointed at a built book, and let the long tests run."""
    parser.addoption("--site", type=Path, help="the built book, for the tests in a browser")
    parser.addoption("--long", action="store_true", help="the long tests: new examples, 20 x more")


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers there are."""
    config.addinivalue_line("markers", "every_figure: for every live figure, not just the first")
    config.addinivalue_line("markers", "stepper: for the first live figure that steps through runs")
    config.addinivalue_line("markers", "picture: for every sixth figure; for all with --long")
    config.addinivalue_line("markers", "long: takes minutes; runs with --long alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests to `--long`, and with it run those and the properties alone."""
    if not config.getoption("--long"):
        skip = pytest.mark.skip(reason="a long test: `make test-long`")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)
        return
    if config.getoption("--site"):
        return  # the browser's tests see to it themselves
    properties = [item for item in items if is_hypothesis_test(getattr(item, "obj", None))]
    for test in {_made_by_hypothesis(item) for item in properties}:
        # Hypothesis has no public way to change what a decorator has set.
        name = "settings" if isinstance(test, type) else "_hypothesis_internal_use_settings"
        now = getattr(test, name, settings.default)
        examples = LONGER * now.max_examples
        setattr(test, name, settings(now, max_examples=examples, derandomize=False, deadline=None))
    keep = [i for i in items if i in set(properties) or i.get_closest_marker("long")]
    config.hook.pytest_deselected(items=[i for i in items if i not in set(keep)])
    items[:] = keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report what was measured, and not asserted."""
    for report in terminalreporter.getreports("passed"):
        for name, said in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(str(said))


def _made_by_hypothesis(item: pytest.Item) -> Any:
    """Return what holds a property's settings: its function, or a state machine's class."""
    if issubclass(getattr(item, "cls", None) or object, unittest.TestCase):
        return item.cls  # type: ignore[attr-defined]
    return getattr(item.obj, "__func__", item.obj)  # type: ignore[attr-defined]
