"""Couchbase: a real memcached for the tests that need one."""

from __future__ import annotations

import os

import pytest

from tests.contrib.couchbase.rig.server import Memcached, install_memcached


@pytest.fixture(scope="session")
def memcached_binary():
    """The path of memcached. Without it the tests say why they cannot run; in CI that is a failure."""
    found = install_memcached()
    if found is None:
        reason = "memcached is not installed: apt-get install memcached"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def memcached(memcached_binary):
    """One server for all tests that do it no harm."""
    with Memcached(memcached_binary) as server:
        yield server


@pytest.fixture
def own_memcached(memcached_binary):
    """A server of the test's own, to be stopped and killed."""
    with Memcached(memcached_binary) as server:
        yield server
