"""An empty database for all simulations, a folder in memory, and a line of figures at the end of the run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulation.database import template
from tests.simulation.replay import memory_folder


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Return a folder for stores in files, in memory if the system offers that."""
    with tempfile.TemporaryDirectory(dir=memory_folder()) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def image(folder: Path) -> bytes:
    """Return an empty database with the schema of redrive."""
    return template(folder)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Add a line to the summary of the run."""
    return lambda line: request.node.user_properties.append(("figure", f"simulation: {line}"))
