"""What all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: a busy machine is not a bug. In CI the same examples every time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the browser's tests be pointed at a built book."""
    parser.addoption("--site", type=Path, help="the built book, for the tests in a browser")


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers there are."""
    config.addinivalue_line("markers", "every_figure: for every live figure, not just the first")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report what was measured, and not asserted."""
    for report in terminalreporter.getreports("passed"):
        for name, said in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(str(said))
