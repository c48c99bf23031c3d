"""The tests that `make test` leaves to `make test-all`, which sets ``REDRIVE_TESTS=all``.

`make test` proves each promise once. It leaves out tests that are marked ``night``, and repetitions of a test:

- In `FOLDERS`, a test that runs on several kinds of stores uses one of them, besides the one in memory. The
  name of the test and its other parameters decide which, so that each kind has its share. In `RACES` it uses
  PostgreSQL, and the other kind in a quarter of the tests.
- Hypothesis draws 40 examples instead of 100 where a test does not name a number, and the same ones in each run.
- The conformance suite of the stores runs on PostgreSQL and in memory as a whole. `tests.stores.colours` has the rules
  for SQLite's files, which share the code of the store in memory, and for Turso, on which each operation runs once.

A run that is narrowed to files, to tests, or by ``-k`` or ``-m`` leaves nothing out.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from zlib import crc32

import pytest

from tests.stores import colours

ALL = os.environ.get("REDRIVE_TESTS") == "all"

IS_SHIFTED = "FAKETIME" in os.environ
"""Whether the tests run at another date. PostgreSQL's time limits do not end there, so what needs them is left out."""

FOLDERS = (
    "tests/acceptance/",
    "tests/app/",
    "tests/cli/",
    "tests/conformance/",
    "tests/contrib/",
    "tests/runtime/",
    "tests/web/",
)
"""Folders whose subject is above the stores."""

RACES = ("tests/acceptance/", "tests/runtime/")
"""Those whose subject is processes and transactions side by side: they race on PostgreSQL, and take turns on SQLite."""

SERVERS = {"postgres", "postgresql"}
"""Values of parameters that are PostgreSQL."""

KINDS = {"file", "memory", "postgres", "postgresql", "sqlite", "turso"}
"""Values of parameters that are kinds of stores."""

FILES = {"file", "sqlite"}
"""Those with the code of the store in memory."""

FIRST = ("tests/web/test_browser.py", "tests/web/test_proxies.py")
"""Modules whose tests share servers. A process that has nothing to do takes tests from the end of the list of another
one, and would start these servers once more."""

CONFORMANCE = "tests/stores/conformance/"

_KEY = "redrive_left_out"


def sized(few: int, everything: int) -> int:
    """Return a number of seeds or trials: the second in `make test-all`."""
    return everything if ALL else few


def repetitions(variants: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of some tests, each with the kind of its store, that are left out.

    The store in memory stays, on which coverage is measured, and one of the others. A file stays as the only other one
    in a quarter of the tests. Turso has a part of an eighth: a test takes five times as long there as on SQLite, whose
    code it has. PostgreSQL stays in each test of `RACES`, and beside it one of the others in a quarter of the tests.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for key, kind in variants:
        found[key].add(kind)
    return {(key, each) for key, kinds in found.items() for each in kinds - _chosen(key, kinds)}


def _chosen(key: str, kinds: set[str]) -> set[str]:
    turn = crc32(key.encode())
    if key.startswith(RACES) and kinds & SERVERS:
        others = sorted(kinds - SERVERS - {"memory"}) if turn % 4 == 0 else []
        return {"memory", *SERVERS, *others[turn // 4 % (len(others) or 1) :][:1]}
    others = sorted(kinds - {"memory"})
    if {"sqlite", "turso"} <= kinds and turn >> 8 & 7:
        others.remove("turso")
    if "memory" in kinds and len(others) == 1 and others[0] in FILES:
        return {"memory", *others} if turn % 4 == 0 else {"memory"}
    return {"memory", *others[turn % len(others) :][:1]} if others else kinds


class Selection:
    """A plugin that leaves out what belongs to `make test-all`, and prints how many tests these are."""

    def __init__(self, config: pytest.Config) -> None:
        options = config.option
        is_narrowed = options.keyword or options.markexpr or any(".py" in each for each in config.args)
        self._is_whole = ALL or bool(is_narrowed)
        self._left_out = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out tests."""
        items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
        if self._is_whole:
            return
        repeated = repetitions(variant for item in items if (variant := _variant(item)))
        kept, others = [], []
        for item in items:
            (others if _is_for_the_night(item) or _variant(item) in repeated else kept).append(item)
        items[:] = kept
        self._left_out = len(others)
        config.hook.pytest_deselected(items=others)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over the number from a process of pytest-xdist, all of which have the same."""
        self._left_out = getattr(node, "workeroutput", {}).get(_KEY, self._left_out)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over the number to the process that prints it."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_KEY] = self._left_out

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the number."""
        if self._left_out:
            terminalreporter.write_line(f"left to make test-all: {self._left_out} tests")


def _is_for_the_night(item: pytest.Item) -> bool:
    if item.get_closest_marker("night") or (IS_SHIFTED and item.get_closest_marker("realtime")):
        return True
    if not isinstance(item, pytest.Function) or not item.nodeid.startswith(CONFORMANCE):
        return False
    kind, _ = item.callspec.params["store"] if "store" in item.fixturenames else ("memory", "")
    return not colours.is_chosen(item.function, kind, shared="shared" in item.fixturenames)


def _variant(item: pytest.Item) -> tuple[str, str] | None:
    """Return a test without the kind of its store, and the kind; None if it has no such parameter."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or not item.nodeid.startswith(FOLDERS):
        return None
    kinds = [each for each in callspec.params.values() if isinstance(each, str) and each in KINDS]
    if len(kinds) != 1:
        return None
    words = callspec.id.split("-")
    words.remove(kinds[0])
    return f"{item.nodeid.partition('[')[0]}[{'-'.join(words)}]", kinds[0]
