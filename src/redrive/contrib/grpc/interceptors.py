"""The policies of methods, and interceptors that retry calls of ``grpcio``; see `redrive.contrib.grpc.channels`.

A method may be declared with ``option idempotency_level = IDEMPOTENT;`` or ``NO_SIDE_EFFECTS`` in its ``.proto`` file.
The generated module of the service, which the program imports for its stubs, registers that in the default descriptor
pool of ``protobuf``. This module does not import ``protobuf``: a program without it has no such declarations.
"""

from __future__ import annotations

import collections
import functools
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

from redrive.contrib import extra
from redrive.contrib.grpc.classify import describe, mark
from redrive.contrib.grpc.service_config import ServiceConfig
from redrive.errors import PolicyValueError
from redrive.errors.foreign import is_a
from redrive.policy import Failure, Policy, Stage
from redrive.policy.classify import reading
from redrive.retrying import budget, loops
from redrive.retrying.context import deadline
from redrive.retrying.own import OwnBudget
from redrive.retrying.plan import Plan
from redrive.retrying.state import CallState, start

_POOL = "google.protobuf.descriptor_pool"
# The values of ``google.protobuf.MethodOptions.IdempotencyLevel``; 0 is IDEMPOTENCY_UNKNOWN.
_NO_SIDE_EFFECTS, _IDEMPOTENT = 1, 2


def is_idempotent(method: str) -> bool:
    """Return True if a method is declared to be idempotent or to have no side effects.

    Args:
        method: its path, ``/shop.Orders/LookUp``. Without a declaration or a descriptor it is not idempotent.
    """
    module: Any = sys.modules.get(_POOL)
    if module is None:
        return False
    try:
        found = module.Default().FindMethodByName(method.removeprefix("/").replace("/", "."))
    except KeyError:
        return False
    return found.GetOptions().idempotency_level in (_NO_SIDE_EFFECTS, _IDEMPOTENT)


with extra("grpc"):
    import grpc
    import grpc.aio
    from grpc.aio import EOF  # pyright: ignore[reportAttributeAccessIssue]  # it comes from a compiled module

_DEFAULT = "GRPC_UNAVAILABLE"
_IPV4 = re.compile(r"(?:ipv4:)?(\d+\.\d+\.\d+\.\d+:\d+)", re.ASCII)
_CACHED_PLANS = 256  # one for each method and timeout


class MethodPolicies:
    """The policies of a channel's methods, prepared for calls; see `redrive.contrib.grpc.channel`."""

    def __init__(self, target: str, policy: Policy | ServiceConfig) -> None:
        self._config = policy if isinstance(policy, ServiceConfig) else None
        self._policy = None if isinstance(policy, ServiceConfig) else _with_classifier(policy)
        self._key: str | None = None
        # In the form of error details; empty if the target is a host name, which only grpcio resolves.
        found = _IPV4.fullmatch(target.rpartition("/")[2])
        self.address: str = f"ipv4:{found[1]}" if found else ""
        if self._config is not None and self._config.throttling is not None:
            self._key = f"grpc {target}"
            budget(self._key, self._config.throttling)
        # One budget for all methods of the channel.
        self._own = OwnBudget()
        self._plan = functools.lru_cache(maxsize=_CACHED_PLANS)(self._make_plan)

    def refuse_hedges(self) -> None:
        """Raise PolicyValueError if a policy hedges: sync calls cannot be cancelled."""
        policies = [self._policy] if self._config is None else [each.policy for each in self._config.methods]
        if any(policy is not None and policy.hedge is not None for policy in policies):
            raise PolicyValueError("a hedging policy needs calls that can be cancelled: use aio_channel()")

    def start(self, details: Any) -> CallState | None:
        """Begin a call; return None if its method is not retried."""
        method = details.method
        name = method.decode() if isinstance(method, bytes) else str(method)
        plan = self._plan(name, details.timeout)
        return None if plan is None else start(plan, f"grpc {name}")

    def _make_plan(self, method: str, timeout: float | None) -> Plan | None:
        policy = self._policy
        if self._config is not None:
            found = self._config.policy_for(method)
            policy = None if found is None else _with_classifier(found)
            if policy is not None and self._key is not None:
                policy = policy.with_(budget=self._key)
        if policy is None:
            return None
        if policy.idempotent is None and is_idempotent(method):
            policy = policy.with_(idempotent=True)
        if timeout is not None:
            # gRFC A6: the timeout of a call covers all its attempts.
            whole = timedelta(seconds=max(timeout, 0.001))
            policy = policy.with_(deadline=whole if policy.deadline is None else min(policy.deadline, whole))
        return Plan(policy, f"grpc {method}", self._own)


def _with_classifier(policy: Policy) -> Policy:
    if policy.parts is not None:
        raise PolicyValueError("a channel takes one policy, and this is a combination: pass one of its parts")
    return policy.with_(on=reading(_describe, policy.on or _DEFAULT))


def _describe(error: BaseException) -> Failure | None:
    # redrive's own timeout of an attempt raises TimeoutError.
    if is_a(error, TimeoutError):
        return Failure.of(error, reason="TIMEOUT", stage=Stage.IN_FLIGHT)
    return describe(error)


_PREVIOUS = "grpc-previous-rpc-attempts"


class _Details(
    collections.namedtuple(  # noqa: PYI024 - the library's base class has a metaclass of its own
        "_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
    ),
    grpc.ClientCallDetails,  # type: ignore[misc]  # the library has no types
):
    """The details of a call that ``grpcio`` passes between interceptors."""

    __slots__ = ()


def _repeatable(details: Any) -> _Details:
    """Return the details of a call with metadata that each attempt can read, because a caller may pass an iterator."""
    return _Details(
        details.method,
        details.timeout,
        tuple(details.metadata or ()),
        details.credentials,
        details.wait_for_ready,
        getattr(details, "compression", None),
    )


def _details(state: CallState | None, details: _Details, *, stream: bool = False) -> _Details:
    """Return the details of an attempt: with its own timeout and the number of attempts before it."""
    metadata = details.metadata
    if state is not None and state.number > 1:
        metadata = (*metadata, (_PREVIOUS, str(state.number - 1)))
    bounds = (details.timeout, _remaining(state, stream=stream))
    timeout = min((each for each in bounds if each is not None), default=None)
    return details._replace(timeout=timeout, metadata=metadata)


def _async_details(state: CallState | None, details: _Details, *, stream: bool = False) -> grpc.aio.ClientCallDetails:
    same = _details(state, details, stream=stream)
    metadata = grpc.aio.Metadata(*same.metadata)
    return grpc.aio.ClientCallDetails(same.method, same.timeout, metadata, same.credentials, same.wait_for_ready)


def _remaining(state: CallState | None, *, stream: bool) -> float | None:
    """Return the seconds that an attempt may take; None without a bound."""
    if not stream:
        found = deadline()
        return None if found is None else found.remaining
    # The default deadline must not end a stream, which may be read for hours.
    if state is None or not state.plan.has_deadline or state.plan.limit is None:
        return None
    return max(0.0, state.started + state.plan.limit - state.clock.monotonic())


def _is_replayable(requests: object) -> bool:
    """Return whether the requests can be iterated more than once."""
    if hasattr(requests, "__aiter__"):
        return not hasattr(requests, "__anext__")
    return hasattr(requests, "__iter__") and not hasattr(requests, "__next__")


class SyncInterceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]  # the library has no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
):
    """The interceptor of a sync channel; ``connected`` returns whether the channel is connected now."""

    def __init__(self, policies: MethodPolicies, connected: Callable[[], bool]) -> None:
        self._policies = policies
        self._connected = connected

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: object, request: object
    ) -> Any:
        """Make the call under its policy."""
        details = _repeatable(client_call_details)
        state = self._policies.start(details)
        return self._run(state, lambda: continuation(_details(state, details), request), _ended)

    def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Make the call under its policy."""
        details = _repeatable(client_call_details)
        state = self._policies.start(details) if _is_replayable(request_iterator) else None
        return self._run(state, lambda: continuation(_details(state, details), iter(request_iterator)), _ended)

    def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: object, request: object
    ) -> Any:
        """Make the call under its policy."""
        details = _repeatable(client_call_details)
        state = self._policies.start(details)
        return self._run(state, lambda: continuation(_details(state, details, stream=True), request), _begun)

    def _run(self, state: CallState | None, call: Callable[[], Any], wait: Callable[[Any], Any]) -> Any:
        if state is None:
            return call()

        def attempt() -> Any:
            before = self._connected()
            try:
                return wait(call())
            except grpc.RpcError as error:
                mark(error, connected=before or self._connected(), address=self._policies.address)
                raise

        try:
            return loops.proceed(state, attempt, (), {})
        except grpc.RpcError as error:
            # grpcio returns a failed call instead of raising it, and callers read the error from it.
            if is_a(error, grpc.Call):
                return error
            raise


def _ended(call: Any) -> Any:
    """Wait until a call has ended; raise its error if it has failed."""
    error = call.exception()
    if error is not None:
        raise error
    return call


def _begun(call: Any) -> Any:
    """Wait for the first message of a call, or its end; raise its error if it fails before."""
    try:
        return _Stream(call, [next(call)])
    except StopIteration:
        return call


class _Stream:
    """A call that returns its first message, which was read already, before the others."""

    def __init__(self, call: Any, taken: list[Any]) -> None:
        self._call = call
        self._taken = taken

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._taken.pop() if self._taken else next(self._call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


class _AsyncInterceptor:
    """The base of the interceptors for asyncio: ``grpcio`` requires one class for each kind of call."""

    # Set after the channel was made, because the channel is made with its interceptors.
    channel: grpc.aio.Channel

    def __init__(self, policies: MethodPolicies) -> None:
        self._policies = policies

    def _connected(self) -> bool:
        return bool(self.channel.get_state() == grpc.ChannelConnectivity.READY)

    async def _run(self, state: CallState, attempt: Callable[[], Awaitable[Any]]) -> Any:
        async def marked() -> Any:
            before = self._connected()
            try:
                return await attempt()
            except grpc.aio.AioRpcError as error:
                mark(error, connected=before or self._connected(), address=self._policies.address)
                raise

        return await loops.aproceed(state, marked, (), {})

    async def _unary(
        self, state: CallState | None, continuation: Callable[..., Any], details: _Details, request: object
    ) -> Any:
        if state is None:
            return await continuation(_async_details(state, details), request)

        async def attempt() -> Any:
            call = await continuation(_async_details(state, details), request)
            await call
            return call

        return await self._run(state, attempt)


class AsyncUnaryUnaryInterceptor(_AsyncInterceptor, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # the library has no types
    """The interceptor of calls with one request and one response."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: object, request: object
    ) -> Any:
        """Make the call under its policy."""
        details = _repeatable(client_call_details)
        return await self._unary(self._policies.start(details), continuation, details, request)


class AsyncStreamUnaryInterceptor(_AsyncInterceptor, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    """The interceptor of calls with many requests and one response."""

    async def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: object, request_iterator: object
    ) -> Any:
        """Make the call under its policy."""
        details = _repeatable(client_call_details)
        state = self._policies.start(details) if _is_replayable(request_iterator) else None
        return await self._unary(state, continuation, details, request_iterator)


class AsyncUnaryStreamInterceptor(_AsyncInterceptor, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """The interceptor of calls with one request and many responses."""

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: object, request: object
    ) -> Any:
        """Make the call under its policy."""
        details = _repeatable(client_call_details)
        state = self._policies.start(details)
        if state is None:
            return await continuation(_async_details(state, details, stream=True), request)

        async def attempt() -> Any:
            """Start the call and read its first message."""
            call = await continuation(_async_details(state, details, stream=True), request)
            return call, await call.read()

        return _messages(*await self._run(state, attempt))


async def _messages(call: Any, message: Any) -> AsyncIterator[Any]:
    while message is not EOF:
        yield message
        message = await call.read()
