"""Hooks for all tests: the profile of Hypothesis, garbage collection, and the times at the end of a run.

Fixtures of one subject live in the nearest ``conftest.py`` below. Folders of tests are not packages (CONTRIBUTING.md),
so helpers are imported by their path from the root: ``from tests.architecture.source import ROOT``.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.selection import ALL, Selection, sized
from tests.stores.colours import Complete

# Hypothesis's deadline measures real time, so it would fail on a busy machine. In `make test` and in CI the examples
# are the same in each run, so that a failure is caused by the change, and so is the coverage; in `make test-all` they
# are new.
settings.register_profile(
    "redrive",
    deadline=None,
    print_blob=True,
    derandomize=not ALL or "CI" in os.environ,
    max_examples=sized(40, 100),
)
settings.load_profile("redrive")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection, from which the collected tests are exempt afterwards too."""
    # They live as long as the process. Collections while they are made take a sixth of the time; a full one that visits
    # all of them takes half a second.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


SLOWEST = 10
"""The number of tests whose seconds are printed at the end."""

REPEATED = 3
"""The number of failed tests up to which they may be repeated."""

AGAIN = 8
"""The exit status if only tests failed that depend on real time; pytest uses 0 to 5. `make again` repeats these."""


class Summary:
    """The seconds of each folder and of the slowest tests, the properties ``figure`` of tests, and the exit status."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()
        self._each: Counter[str] = Counter()
        self._figures: list[object] = []
        self._failed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a test, or of its set-up or tear-down."""
        path = report.nodeid.partition("::")[0]
        folder = "/".join(path.split("/")[:2])
        self._seconds[folder] += report.duration
        self._each[report.nodeid] += report.duration
        self._tests[folder] += report.when == "call"
        if report.when == "call":
            self._figures += [value for key, value in report.user_properties if key == "figure"]
        if report.failed:
            self._failed[report.nodeid] = "realtime" in report.keywords

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Change the exit status if only tests failed that may be repeated."""
        yield
        is_few = 1 <= session.testsfailed == len(self._failed) <= REPEATED
        if is_few and all(self._failed.values()) and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = AGAIN

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the folders and the tests, the longest time first."""
        write = terminalreporter.write_line
        terminalreporter.section("seconds per folder, in all processes together, and the slowest tests", sep="-")
        for folder, seconds in self._seconds.most_common():
            write(f"{seconds:8.1f} s {self._tests[folder]:6} tests  {folder}")
        write(f"{self._seconds.total():8.1f} s {self._tests.total():6} tests")
        for name, seconds in self._each.most_common(SLOWEST):
            write(f"{seconds:8.1f} s  {name}")
        for figure in dict.fromkeys(self._figures):
            write(str(figure))


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins; summaries are made in the process that prints them."""
    plugins = config.pluginmanager
    plugins.register(Selection(config))
    plugins.register(Complete(config))
    if hasattr(config, "workerinput"):
        return
    plugins.register(Summary())
    if config.getoption("numprocesses", None):
        # The first process of pytest-xdist collects no tests, so it does not load this file by itself.
        module = importlib.import_module("tests.conformance.conftest")
        if not plugins.is_registered(module):
            plugins.register(module)
