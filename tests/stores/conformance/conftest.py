"""The store under test: each kind of store, in the colours of `tests.stores.colours`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres
from tests.stores.colours import cases
from tests.stores.helpers import SHARED, STORES, Harness, harness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the stores and the colours of each test."""
    if "store" in metafunc.fixturenames:
        each = cases(metafunc.function, SHARED if "shared" in metafunc.fixturenames else STORES)
        metafunc.parametrize("store", each, ids=map("-".join, each), indirect=True)


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[tuple[str, str], Harness]]:
    """Return the stores on PostgreSQL that tests of this module have opened, by URL and colour."""
    # A new session plans each statement anew, which takes longer than most tests.
    opened: dict[tuple[str, str], Harness] = {}
    yield opened
    for each in opened.values():
        each.close()


@pytest.fixture
def store(
    request: pytest.FixtureRequest, tmp_path: Path, sessions: dict[tuple[str, str], Harness]
) -> Iterator[Harness]:
    """Yield an empty store."""
    kind, colour = request.param
    if kind != "postgres":
        with harness(kind, colour, tmp_path) as opened:
            yield opened
        return
    with postgres.lent() as url:
        if (url, colour) not in sessions:
            sessions[url, colour] = Harness(url, colour)
        yield sessions[url, colour].renewed()


@pytest.fixture
def shared(store: Harness) -> Harness:
    """Return an empty store that other processes can open too."""
    return store
