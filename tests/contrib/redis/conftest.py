"""Fixtures for Redis: a real server, a proxy in front of it, and sync and async clients."""

from __future__ import annotations

import asyncio
import contextvars
import inspect

import pytest
import redis
import redis.asyncio

from redrive.contrib.redis import wrap
from redrive.policy import Backoff, Policy
from tests.contrib.redis.rig.server import RedisServer
from tests.debian import needed, program
from tests.proxy import Proxy

AT_ONCE = Policy(attempts=4, backoff=Backoff.constant(0))


@pytest.fixture(scope="session")
def redis_binary():
    """Return the path of redis-server."""
    return needed("redis-server", lambda: program("redis-server"))


@pytest.fixture(scope="session")
def shared_server(redis_binary, tmp_path_factory):
    """Start one server for all tests that leave it intact."""
    with RedisServer(redis_binary, tmp_path_factory.mktemp("redis"), "--enable-debug-command", "yes") as server:
        yield server


@pytest.fixture
def server(shared_server):
    """Return the shared server, emptied."""
    shared_server.ask("FLUSHALL")
    return shared_server


@pytest.fixture
def own_server(redis_binary, tmp_path):
    """Start a server that only this test uses and may kill."""
    with RedisServer(redis_binary, tmp_path) as server:
        yield server


@pytest.fixture
def proxy(server):
    """Start a proxy in front of the server."""
    with Proxy((server.host, server.port)) as proxy:
        yield proxy


class SyncClients:
    """Tests in sync code."""

    kind = redis.Redis

    def plain(self, port, **options):
        """Return an unwrapped client of redis-py."""
        return self.kind(host="127.0.0.1", port=port, **options)

    def client(self, port, policy=AT_ONCE, *, answers_matter=True, **options):
        """Return a client under a policy."""
        return wrap(self.plain(port, **options), policy, answers_matter=answers_matter)

    def done(self, answer):
        """Return the reply."""
        return answer

    def notice(self):
        """Let the client notice changes of its connections."""

    def close(self):
        """Close the clients."""


class AsyncClients(SyncClients):
    """Tests in async code."""

    kind = redis.asyncio.Redis

    def __init__(self):
        self._runner = asyncio.Runner()
        self._clients = []

    def plain(self, port, **options):
        """Return an unwrapped client of redis-py."""
        client = super().plain(port, **options)
        self._clients.append(client)
        return client

    def done(self, answer):
        """Await and return the reply."""

        async def wait():
            """Await the reply."""
            return await answer if inspect.isawaitable(answer) else answer

        return self._runner.run(wait(), context=contextvars.copy_context())

    def notice(self):
        """Let the loop poll its sockets and handle their events."""
        loop = self._runner.get_loop()
        for _ in range(3):
            loop.call_soon(loop.stop)
            loop.run_forever()

    def close(self):
        """End the clients and the loop."""
        for client in self._clients:
            self.done(client.aclose())
        self._runner.close()


@pytest.fixture(params=[SyncClients, AsyncClients], ids=["sync", "async"])
def colour(request):
    """Provide the sync API, then the async one."""
    made = request.param()
    yield made
    made.close()
