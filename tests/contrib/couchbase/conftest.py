"""Couchbase: a real memcached for the tests that need one."""

from __future__ import annotations

import pytest

from tests.contrib.couchbase.rig.server import Memcached
from tests.debian import needed, program


@pytest.fixture(scope="session")
def memcached_binary():
    """Return the path of memcached."""
    return needed("memcached", lambda: program("memcached"))


@pytest.fixture(scope="session")
def memcached(memcached_binary):
    """Start one server for all tests that do not disturb it."""
    with Memcached(memcached_binary) as server:
        yield server


@pytest.fixture
def own_memcached(memcached_binary):
    """Start a server of the test's own, to be stopped and killed."""
    with Memcached(memcached_binary) as server:
        yield server
