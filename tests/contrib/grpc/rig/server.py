"""A real gRPC server with methods that follow a test's script, one step for each call, and that records its calls.

No service is compiled: every method exists, of the kind that its name begins with (``Stream...`` returns many messages,
``Collect...`` takes many, any other takes and returns one), and messages are bytes. Run as a program it is a server
that can be killed: it prints its port, then every request before it answers, and a request ``die`` ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc

__all__ = ["GrpcServer", "fail"]

Step = Callable[[bytes, Any], Any]


def fail(
    code: str, details: str = "no", *, trailers: tuple[Any, ...] = (), headers: tuple[Any, ...] = (), after: int = 0
) -> Step:
    """Return a step that ends a call with a status.

    Args:
        code: the name of the status.
        details: the text of the status.
        trailers: trailing metadata.
        headers: initial metadata, sent at once.
        after: messages before the status."""

    def step(request: bytes, context: Any) -> Iterator[bytes]:
        if headers:
            context.send_initial_metadata(headers)
        yield from [request] * after
        context.set_trailing_metadata(trailers)
        context.abort(grpc.StatusCode[code], details)

    return step


def echo(request: bytes, _: Any) -> Iterator[bytes]:
    """Return the request, three times for methods with many responses; the step after all others."""
    yield from [request] * 3


@dataclass
class GrpcServer:
    """A server on the loopback interface.

    Attributes:
        steps: the steps of the next calls; after the last one calls are echoed.
        calls: the requests that reached a method; many requests of a call are joined.
        metadata: the metadata of each call.
        remaining: seconds that each call had; None without a deadline."""

    steps: list[Step] = field(default_factory=list)
    calls: list[bytes] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    remaining: list[float | None] = field(default_factory=list)
    address: str = ""

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(4)
        self._server = grpc.server(self._pool, handlers=[_Methods(self)], options=[("grpc.so_reuseport", 0)])
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown()

    def answer(self, request: bytes, context: Any) -> Iterator[bytes]:
        """Answer one call."""
        self.calls.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        left = context.time_remaining()
        self.remaining.append(left if left is not None and left < 10**6 else None)  # the library's "none" is very long
        yield from (self.steps.pop(0) if self.steps else echo)(request, context)


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, server: GrpcServer) -> None:
        self._server = server

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        if name.startswith("Stream"):
            return grpc.unary_stream_rpc_method_handler(self._server.answer)
        if name.startswith("Collect"):
            return grpc.stream_unary_rpc_method_handler(
                lambda requests, context: next(self._server.answer(b"".join(requests), context))
            )
        if name.startswith("Talk"):
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._server.answer(b"".join(requests), context)
            )
        return grpc.unary_unary_rpc_method_handler(lambda request, context: next(self._server.answer(request, context)))


def _mortal(request: bytes, _: Any) -> Iterator[bytes]:
    print(request.decode(), flush=True)  # noqa: T201 - how it tells
    if request == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    yield request


if __name__ == "__main__":
    with GrpcServer(steps=[_mortal] * 100) as running:
        print(running.port, flush=True)  # noqa: T201 - the same
        sys.stdin.read()
