"""The store under test: each kind of store, in the colours of `tests.stores.colours`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.colours import cases
from tests.stores.helpers import SHARED, STORES, Harness, harness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the stores and the colours of each test."""
    for name, kinds in (("store", STORES), ("shared", SHARED)):
        if name in metafunc.fixturenames:
            each = cases(metafunc.function, kinds)
            metafunc.parametrize(name, each, ids=map("-".join, each), indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Yield a new, empty store."""
    kind, colour = request.param
    with harness(kind, colour, tmp_path) as opened:
        yield opened


@pytest.fixture
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Yield a new, empty store that other processes can open too."""
    kind, colour = request.param
    with harness(kind, colour, tmp_path) as opened:
        yield opened
