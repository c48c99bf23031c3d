"""A pytest plugin that measures the coverage of the pure layers, for `make test COVER=1`.

Each branch of the pure layers needs a test. Their own tests, and those of the layers right above, have to take all
branches; the rest of the suite runs without the cost of tracing, which doubles the time of a test. Each process writes
one data file, which `coverage combine` merges.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import pkgutil
import re
from collections.abc import Callable, Generator

import coverage
import pytest

FOLDERS = re.compile(
    r"tests/(app|engine|errors|policy|retrying|schedule|stores|testing)/|tests/conformance/scenarios/test_topics"
)
"""Folders with tests that are measured, on the store in memory where they run on each store. Tests that are marked
``slow`` or ``unmeasured``, such as walks of state machines and comparisons with a slow calendar, are not measured:
shorter tests take their branches."""

OTHER_STORES = re.compile(r"file|postgres|sqlite|turso", re.IGNORECASE)


PROPERTIES = re.compile(r"tests/(engine|policy|schedule)/")
"""Folders with properties that are measured too. Elsewhere examples take every branch that a property takes."""

EXAMPLES = {"engine": 25, "policy": 25, "schedule": 10_000}
"""The first so many examples of a property are measured, those of ``@example`` included. All of them run."""
# Some branches of schedules are taken by few of the examples, which differ from run to run outside CI.


def is_property(item: pytest.Item) -> bool:
    """Return whether a test is one of Hypothesis with a function that can be measured; a state machine has none."""
    return hasattr(getattr(item, "obj", None), "hypothesis")


def is_measured(item: pytest.Item) -> bool:
    """Return whether the branches that a test takes count."""
    folders = PROPERTIES if is_property(item) else FOLDERS
    if any(map(item.get_closest_marker, ("slow", "unmeasured"))) or OTHER_STORES.search(item.nodeid.partition("::")[2]):
        return False
    return folders.match(item.nodeid) is not None


class Measurement:
    """Coverage of the import of the pure layers and of each test that is measured."""

    def __init__(self) -> None:
        self._coverage = coverage.Coverage()
        pure = self._coverage.get_option("run:source")
        assert isinstance(pure, list)
        # Module bodies run once. A test that is not measured must not be the one that imports them.
        self._coverage.start()
        for name in pure:
            package = importlib.import_module(name)
            for module in pkgutil.walk_packages(package.__path__, f"{name}."):
                importlib.import_module(module.name)
        self._coverage.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure one test with its fixtures, or examples of a property, if it is one of those that are measured."""
        if not is_measured(item):
            return (yield)
        if is_property(item):
            # Hypothesis itself, which draws the examples, is not traced.
            handle = item.obj.hypothesis
            inner, handle.inner_test = (
                handle.inner_test,
                self._measured(handle.inner_test, EXAMPLES[item.nodeid.split("/")[1]]),
            )
            try:
                return (yield)
            finally:
                handle.inner_test = inner
        self._coverage.start()
        try:
            return (yield)
        finally:
            self._coverage.stop()

    def _measured(self, inner: Callable[..., None], examples: int) -> Callable[..., None]:
        """Return the test of one example that measures the first of its runs."""
        runs = itertools.count()

        @functools.wraps(inner)
        def test(*args: object, **kwargs: object) -> None:
            if next(runs) >= examples:
                inner(*args, **kwargs)
                return
            self._coverage.start()
            try:
                inner(*args, **kwargs)
            finally:
                self._coverage.stop()

        # Hypothesis seeds the examples of CI with the signature, and they are to be the same without this plugin.
        test.__signature__ = inspect.signature(inner)
        return test

    def pytest_sessionfinish(self) -> None:
        """Write the data file."""
        self._coverage.save()


def pytest_configure(config: pytest.Config) -> None:
    """Measure in the processes that run tests, which with pytest-xdist is not the first one."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Measurement())
