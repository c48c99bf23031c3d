"""A stage for one test: a server, a proxy that goes wrong, a client, an orchestrator, and a counter to look at."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from redrive.contrib.couchbase import ErrorMap, is_idempotent
from redrive.orchestrator import Orchestrator, Request
from tests.contrib.couchbase.rig.client import KvClient, KvError, Operation, increment
from tests.contrib.couchbase.rig.frames import REQUEST, Frame, Opcode, read_frame
from tests.contrib.couchbase.rig.proxy import FaultProxy, FrameFault
from tests.contrib.couchbase.rig.server import Memcached

__all__ = ["CouchbaseRig", "EndedRequest", "run_on_rig", "set_up"]

_KEYS = count()


@dataclass
class EndedRequest:
    """What became of a request.

    Attributes:
        request: the request.
        error: what it ended with; None for a response.
        frame: the response.
    """

    request: Request
    error: Exception | None = None
    frame: Frame | None = None

    @property
    def reasons(self) -> list[str]:
        """Why it was sent again."""
        return [reason.name for reason in self.request.retry_reasons]

    @property
    def verdict_reason(self) -> str | None:
        """Return the reason of the refusal that ended it."""
        assert isinstance(self.error, KvError)
        return self.error.verdict.reason


@dataclass
class CouchbaseRig:
    """What a test needs.

    Attributes:
        server: memcached.
        proxy: in front of it.
        client: speaks to the proxy.
        orchestrator: retries.
        key: of the counter, which is 0.
    """

    server: Memcached
    proxy: FaultProxy
    client: KvClient
    orchestrator: Orchestrator
    key: bytes

    def fails(self, kind: str, **details: Any) -> None:
        """Let requests to the counter go wrong; see `FrameFault`."""
        self.proxy.faults.append(FrameFault(kind, key=self.key, **details))

    async def increment(self, **options: Any) -> EndedRequest:
        """Add 1 to the counter under the orchestrator."""
        return await self.run(increment(self.key), **options)

    async def get(self, **options: Any) -> EndedRequest:
        """Read the counter under the orchestrator."""
        return await self.run(Operation("get", Frame(REQUEST, Opcode.GET, self.key)), **options)

    async def run(self, operation: Operation, **options: Any) -> EndedRequest:
        """Run an operation under the orchestrator.

        Args:
            operation: what.
            **options: of the request.
        """
        idempotent = is_idempotent("kv", operation.name)
        ended = EndedRequest(Request(operation.name, **{"idempotent": idempotent, "timeout": "2s", **options}))
        try:
            ended.frame = await self.client.call(ended.request, operation, self.orchestrator)
        except Exception as error:  # noqa: BLE001 - what it ended with is what tests look at
            ended.error = error
        return ended

    async def counter(self) -> int:
        """Return the counter on the server, read without the proxy."""
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
        try:
            writer.write(Frame(REQUEST, Opcode.GET, self.key).encode())
            return int((await read_frame(reader)).value)
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def set_up(
    server: Memcached, orchestrator: Orchestrator | None = None, *, error_map: ErrorMap | None = None
) -> AsyncIterator[CouchbaseRig]:
    """Make a rig.

    Args:
        server: memcached.
        orchestrator: by default one with best effort.
        error_map: of the server.
    """
    key = b"counter%d" % next(_KEYS)
    async with (
        FaultProxy(server.host, server.port) as proxy,
        KvClient(proxy.endpoint, error_map=error_map) as client,
    ):
        stage = CouchbaseRig(server, proxy, client, orchestrator or Orchestrator(), key)
        set_to_zero = Operation("upsert", Frame(REQUEST, Opcode.SET, key, struct.pack(">II", 0, 0), b"0"))
        done = await stage.run(set_to_zero)
        assert done.error is None, done.error
        proxy.seen.clear()
        proxy.forwarded.clear()
        proxy.passed_on.clear()
        client.sends = 0
        yield stage


def run_on_rig(
    server: Memcached,
    steps: Callable[[CouchbaseRig], Awaitable[Any]],
    orchestrator: Orchestrator | None = None,
    **options: Any,
) -> Any:
    """Run steps on a rig and return their result.

    Args:
        server: memcached.
        steps: a coroutine function that gets the rig.
        orchestrator: see `set_up`.
        **options: see `set_up`.
    """

    async def _play() -> Any:
        async with set_up(server, orchestrator, **options) as stage:
            return await steps(stage)

    return asyncio.run(_play())
