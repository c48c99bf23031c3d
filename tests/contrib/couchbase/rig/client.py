"""A small key-value client on asyncio: enough to test RFC 0049.

One connection per endpoint, pipelined: responses find their request by the opaque. It does not retry. `send` makes one
attempt for `redrive.orchestrator.Orchestrator.run`, marks its stage, and raises the error of the tables of
`redrive.contrib.couchbase`.

An abandoned request leaves its opaque behind; the response that comes for it later is an *orphan*.
A response with an opaque that was never given away means that the stream is out of step: the connection is closed.
"""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

from redrive.contrib.couchbase import ErrorMap, Verdict, classify_event, classify_kv
from redrive.orchestrator import Attempt, Request
from tests.contrib.couchbase.rig.frames import REQUEST, Frame, Opcode, read_frame

__all__ = ["KvClient", "KvError", "MemcachedConnection", "Operation", "increment"]


class KvError(Exception):
    """What the client raises: a verdict, for the orchestrator to read."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"{verdict.error}: {verdict.detail}")
        self.verdict = verdict
        self.retry_reason = verdict.classified()


@dataclass(frozen=True)
class Operation:
    """What is asked.

    Attributes:
        name: as RFC 0049 calls it.
        frame: the request, without an opaque.
    """

    name: str
    frame: Frame


def increment(key: bytes, delta: int = 1, initial: int = 0) -> Operation:
    """Add to a counter, which begins with ``initial``; the first call sets it and adds nothing."""
    extras = struct.pack(">QQI", delta, initial, 0)
    return Operation("increment", Frame(REQUEST, Opcode.INCREMENT, key, extras))


@dataclass
class MemcachedConnection:
    """One connection.

    Attributes:
        writes: so many bytes can still be written before it breaks; None for no limit.
        orphans: responses to abandoned requests.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    writes: int | None = None
    orphans: list[Frame] = field(default_factory=list)
    waiting: dict[int, tuple[asyncio.Future[Frame], Attempt]] = field(default_factory=dict)
    closed: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Return the id of the connection."""
        return f"{id(self):x}"

    @property
    def local_address(self) -> str:
        """Its own end."""
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    @classmethod
    async def open(cls, endpoint: str) -> MemcachedConnection:
        """Connect.

        Raises:
            OSError: the connection was refused.
        """
        host, _, port = endpoint.rpartition(":")
        connection = cls(*await asyncio.open_connection(host, int(port)))
        connection.task = asyncio.create_task(connection._read())
        return connection

    async def _read(self) -> None:
        event = "closed in flight"
        try:
            while True:
                frame = await read_frame(self.reader)
                if frame.opaque not in self.waiting:
                    event = "unknown opaque"
                    return
                future, attempt = self.waiting.pop(frame.opaque)
                if future.done():
                    self.orphans.append(frame)
                    attempt.answer()
                else:
                    future.set_result(frame)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed = True
            self.writer.close()
            for future, _ in self.waiting.values():
                if not future.done():
                    future.set_exception(KvError(classify_event(event)))

    async def ask(self, frame: Frame, attempt: Attempt) -> asyncio.Future[Frame]:
        """Write a request.

        Returns:
            What will be its response.

        Raises:
            KvError: the connection broke before the last byte.
        """
        encoded = frame.encode()
        if self.writes is not None and self.writes < len(encoded):
            self.writer.write(encoded[: self.writes])
            self.writer.close()
            self.closed = True
            raise KvError(classify_event("short write"))
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.waiting[frame.opaque] = future, attempt
        self.writer.write(encoded)
        return future

    async def close(self) -> None:
        """Close it and wait until it is."""
        self.closed = True
        self.writer.close()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        with suppress(OSError):
            await self.writer.wait_closed()


class KvClient:
    """Sends operations to the endpoint of their key.

    Args:
        endpoint: of all keys, until a newer configuration moves them.
        error_map: of the server.

    Attributes:
        sends: how many frames were written, or tried to.
        break_after: the next connection breaks after so many bytes; used once.
    """

    def __init__(self, endpoint: str, *, error_map: ErrorMap | None = None) -> None:
        self.endpoint = endpoint
        self.error_map = error_map
        self.sends = 0
        self.break_after: int | None = None
        self._opaques = count(1)
        self._connections: list[MemcachedConnection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections:
            await connection.close()

    @property
    def connections(self) -> int:
        """Return the number of connections made."""
        return len(self._connections)

    @property
    def orphans(self) -> list[Frame]:
        """Return the responses that no request was waiting for."""
        return [frame for connection in self._connections for frame in connection.orphans]

    async def send(self, operation: Operation, attempt: Attempt) -> Frame:
        """Make one attempt.

        Args:
            operation: what is asked.
            attempt: gets the stage.

        Returns:
            The response, if it is a success.

        Raises:
            KvError: it is none, or there is none.
        """
        while True:
            connection = await self._connected()
            attempt.dispatch(self.endpoint, local_address=connection.local_address, channel_id=connection.id)
            frame = await self._exchange(connection, operation, attempt)
            attempt.answer()
            verdict = classify_kv(frame.status, operation.name, cas=operation.frame.cas, error_map=self.error_map)
            if verdict.reason == "KV_NOT_MY_VBUCKET" and self._moves(frame.value):
                continue  # the response has told where to go: no waiting, and no attempt to be recorded
            if verdict.closes:
                await connection.close()
            if verdict.error is not None:
                raise KvError(verdict)
            return frame

    async def call(self, request: Request, operation: Operation, orchestrator: object) -> Frame:
        """Send an operation under an orchestrator."""

        async def _send(_: Request, attempt: Attempt) -> Frame:
            return await self.send(operation, attempt)

        answer: Frame = await orchestrator.run(request, _send, marks=True)  # type: ignore[attr-defined]
        return answer

    async def _connected(self) -> MemcachedConnection:
        if self._connections and not self._connections[-1].closed and self._is_current(self._connections[-1]):
            return self._connections[-1]
        try:
            connection = await MemcachedConnection.open(self.endpoint)
        except OSError as error:
            raise KvError(classify_event("connection refused")) from error
        connection.writes, self.break_after = self.break_after, None
        self._connections.append(connection)
        return connection

    def _is_current(self, connection: MemcachedConnection) -> bool:
        host, port = connection.writer.get_extra_info("peername")[:2]
        return self.endpoint == f"{host}:{port}"

    async def _exchange(self, connection: MemcachedConnection, operation: Operation, attempt: Attempt) -> Frame:
        self.sends += 1
        source = operation.frame
        frame = Frame(
            REQUEST, source.opcode, source.key, source.extras, source.value, opaque=next(self._opaques), cas=source.cas
        )
        try:
            future = await connection.ask(frame, attempt)
        except KvError:
            attempt.undispatch()  # a frame without its end is never executed
            raise
        return await future

    def _moves(self, body: bytes) -> bool:
        if not body:
            return False
        endpoint: str = json.loads(body)["node"]
        moved = endpoint != self.endpoint
        self.endpoint = endpoint
        return moved
