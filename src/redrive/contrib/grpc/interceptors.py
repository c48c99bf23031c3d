"""The interceptors that make the calls of gRPC's library, and make them again; see `redrive.contrib.grpc.channels`."""

# ruff: noqa: ANN401 - calls, requests and messages belong to a library without types, and to its user

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import grpc.aio
from grpc.aio import EOF  # pyright: ignore[reportAttributeAccessIssue]  # it comes from a compiled module

from redrive.contrib.grpc.calls import Calls, asaid, is_replayable, said
from redrive.contrib.grpc.proof import mark
from redrive.retrying import loops
from redrive.retrying.state import CallState

__all__ = ["AsyncRequests", "AsyncStream", "AsyncUnary", "Interceptor"]


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]  # the library has no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
):
    """Sync code.

    Args:
        calls: which policy each call has.
        connected: tells whether the channel is connected at this moment.
    """

    def __init__(self, calls: Calls, connected: Callable[[], bool]) -> None:
        self._calls = calls
        self._connected = connected

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """See the library."""
        run = self._calls.start(client_call_details)
        return self._carry_out(run, lambda: continuation(said(run, client_call_details), request), _ended)

    def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        """See the library."""
        run = self._calls.start(client_call_details) if is_replayable(request_iterator) else None
        return self._carry_out(
            run, lambda: continuation(said(run, client_call_details), iter(request_iterator)), _ended
        )

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """See the library."""
        run = self._calls.start(client_call_details)
        return self._carry_out(run, lambda: continuation(said(run, client_call_details, stream=True), request), _begun)

    def _carry_out(self, run: CallState | None, call: Callable[[], Any], await_: Callable[[Any], Any]) -> Any:
        if run is None:
            return call()

        def attempt() -> Any:
            before = self._connected()
            try:
                return await_(call())
            except grpc.RpcError as error:
                mark(error, connected=before or self._connected(), address=self._calls.address)
                raise

        try:
            return loops.proceed(run, attempt, (), {})
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call):  # a call that has failed, which is what the library returns for one
                return error
            raise


def _ended(call: Any) -> Any:
    """Wait until a call has ended.

    Raises:
        grpc.RpcError: it has failed.
    """
    error = call.exception()
    if error is not None:
        raise error
    return call


def _begun(call: Any) -> Any:
    """Wait until a call has brought its first message, or ended without one.

    Raises:
        grpc.RpcError: it has failed before.
    """
    try:
        return _Stream(call, [next(call)])
    except StopIteration:
        return call


class _Stream:
    """A call whose first message has been taken out: it comes first, and everything else is as it was."""

    def __init__(self, call: Any, taken: list[Any]) -> None:
        self._call = call
        self._taken = taken

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._taken.pop() if self._taken else next(self._call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


class _Async:
    """What the three interceptors for asyncio share; the library asks for one class each.

    Args:
        calls: which policy each call has.

    Attributes:
        channel: theirs, as soon as there is one: it is made with them.
    """

    channel: grpc.aio.Channel

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def _connected(self) -> bool:
        return bool(self.channel.get_state() == grpc.ChannelConnectivity.READY)

    async def _carry_out(self, run: CallState, attempt: Callable[[], Awaitable[Any]]) -> Any:
        async def marked() -> Any:
            before = self._connected()
            try:
                return await attempt()
            except grpc.aio.AioRpcError as error:
                mark(error, connected=before or self._connected(), address=self._calls.address)
                raise

        return await loops.aproceed(run, marked, (), {})

    async def _unary(self, run: CallState | None, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        if run is None:
            return await continuation(asaid(run, details), request)

        async def attempt() -> Any:
            call = await continuation(asaid(run, details), request)
            await call
            return call

        return await self._carry_out(run, attempt)


class AsyncUnary(_Async, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # the library has no types
    """One request, one answer."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """See the library."""
        run = self._calls.start(client_call_details)
        return await self._unary(run, continuation, client_call_details, request)


class AsyncRequests(_Async, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    """Many requests, one answer."""

    async def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        """See the library."""
        run = self._calls.start(client_call_details) if is_replayable(request_iterator) else None
        return await self._unary(run, continuation, client_call_details, request_iterator)


class AsyncStream(_Async, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """One request, many answers."""

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """See the library."""
        run = self._calls.start(client_call_details)
        if run is None:
            return await continuation(asaid(run, client_call_details, stream=True), request)

        async def attempt() -> Any:
            """The call and its first message."""
            call = await continuation(asaid(run, client_call_details, stream=True), request)
            return call, await call.read()

        return _messages(*await self._carry_out(run, attempt))


async def _messages(call: Any, message: Any) -> AsyncIterator[Any]:
    while message is not EOF:
        yield message
        message = await call.read()
