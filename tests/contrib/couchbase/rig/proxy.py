"""A proxy in front of a key-value server that goes wrong on demand: what, for which requests, how many times.

It reads whole frames, so a fault hits exactly the request that it was made for. The faults differ in
whether the server has executed the request.

==================  ==========================================  ===================
fault               what the client sees                        executed
==================  ==========================================  ===================
``answer``          a response with this status                 no
``rewrite``         the server's response, another status       yes
``cut_before``      the connection closes                       no
``cut_after``       the connection closes                       yes
``hold``            nothing, until `FaultProxy.release`         yes
``swallow``         nothing, ever                               no
==================  ==========================================  ===================
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from tests.contrib.couchbase.rig.frames import RESPONSE, Frame, read_frame

__all__ = ["FaultProxy", "FrameFault"]


@dataclass
class FrameFault:
    """Something that goes wrong.

    Attributes:
        kind: one of the table above.
        status: for ``answer`` and ``rewrite``.
        value: of the response, for ``answer``.
        opcode: only for this operation; None for all.
        key: only for this key; None for all.
        times: so many requests are hit.
    """

    kind: str
    status: int = 0
    value: bytes = b""
    opcode: int | None = None
    key: bytes | None = None
    times: int = 1

    def hits(self, frame: Frame) -> bool:
        """Return True if the fault applies to a request and has not been used up."""
        return self.times > 0 and self.opcode in {None, frame.opcode} and self.key in {None, frame.key}


class FaultProxy:
    """Listens on the loopback interface and speaks to one server.

    Args:
        host: of the server.
        port: of the server.

    Attributes:
        faults: what goes wrong; the first one that hits a request is used.
        seen: the requests that came in.
        forwarded: the requests that the server got.
        passed_on: the first of them has gone to it.
    """

    def __init__(self, host: str, port: int) -> None:
        self.faults: list[FrameFault] = []
        self.seen: list[Frame] = []
        self.forwarded: list[Frame] = []
        self.passed_on = asyncio.Event()
        self._released = asyncio.Event()
        self._upstream = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def endpoint(self) -> str:
        """Return the address as ``host:port``."""
        assert self._server
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:  # also those whose task was ended before it began
            await _close(writer)
        await self._server.wait_closed()

    def release(self) -> None:
        """Let through what is held."""
        self._released.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):  # either side has gone; so does the other
            server_reader, server = await asyncio.open_connection(*self._upstream)
            self._writers.append(server)
            try:
                frame = await read_frame(reader)
                while await self._pass_on(frame, writer, server_reader, server):
                    frame = await read_frame(reader)
            finally:
                server.close()
        writer.close()

    async def _pass_on(
        self, frame: Frame, client: asyncio.StreamWriter, reader: asyncio.StreamReader, server: asyncio.StreamWriter
    ) -> bool:
        """Pass on one request; return True if the connection stays open."""
        self.seen.append(frame)
        fault = next((fault for fault in self.faults if fault.hits(frame)), None)
        if fault is not None:
            fault.times -= 1
            if fault.kind == "answer":
                return await _send(client, _reply(frame, fault))
            if fault.kind == "swallow":
                return True
            if fault.kind == "cut_before":
                return False
        self.forwarded.append(frame)
        await _send(server, frame)
        self.passed_on.set()
        reply = await read_frame(reader)
        if fault is None:
            return await _send(client, reply)
        if fault.kind == "rewrite":
            return await _send(client, replace(reply, status=fault.status))
        if fault.kind == "hold":
            await self._released.wait()
            return await _send(client, reply)
        assert fault.kind == "cut_after", fault
        return False


def _reply(frame: Frame, fault: FrameFault) -> Frame:
    return Frame(RESPONSE, frame.opcode, value=fault.value, status=fault.status, opaque=frame.opaque)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _send(writer: asyncio.StreamWriter, frame: Frame) -> bool:
    writer.write(frame.encode())
    await writer.drain()
    return True
