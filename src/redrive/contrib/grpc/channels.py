"""Channels of gRPC's library whose calls are retried under a policy, or under a service config, in both colours.

`channel` and `aio_channel` make a channel like any other, and stubs are made on it as on any other. They switch the
library's own retries off (``grpc.enable_retries``), so that nobody retries twice, and put interceptors in their place:

==============  ==============================================================================================
kind of call    what is retried
==============  ==============================================================================================
unary-unary     the call. In sync code ``.future()`` comes back when it has ended
unary-stream    until the first message: then the caller has seen something, and errors are the caller's
stream-unary    the call, if its requests can be gone through again: a list, or whatever gives a new iterator each
                time. An iterator or a generator cannot, nor can ``write()``: such a call is made once
stream-stream   nothing: it is a conversation
==============  ==============================================================================================

**Time.** A ``timeout=`` of a call is for all its attempts, as in gRFC A6: it becomes the deadline of the policy, unless
that is shorter. Each attempt gets as its own timeout what is left (`redrive.deadline`), and the server is told. For a
stream that is so only if somebody gave a deadline: the 45 s of a policy without one are not for a stream to end by.

**Metadata.** A retry says in ``grpc-previous-rpc-attempts`` how many there were before it (gRFC A6), and the server's
``grpc-retry-pushback-ms`` or ``RetryInfo`` is a floor of the wait, or forbids the retry.

**How far a call got** is found out by `redrive.contrib.grpc.proof`. The sync library has no public way to ask for the
state of a channel at once; if the private one is ever missing, nothing is proved, and fewer calls are repeated.
"""

# ruff: noqa: ANN401 - calls, requests and messages belong to a library without types, and to its user

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from redrive.contrib.grpc.calls import Calls
from redrive.contrib.grpc.interceptors import AsyncRequests, AsyncStream, AsyncUnary, Interceptor
from redrive.contrib.grpc.service import ServiceConfig
from redrive.errors import PolicyValueError
from redrive.policy import Policy

__all__ = ["aio_channel", "channel"]

Options = Sequence[tuple[str, Any]]
_RETRIES = "grpc.enable_retries"


def channel(
    target: str,
    policy: Policy | ServiceConfig,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    options: Options = (),
    compression: grpc.Compression | None = None,
) -> grpc.Channel:
    """A channel for sync code whose calls are retried.

    Args:
        target: of the server, as in ``grpc.insecure_channel``.
        policy: for all calls; its ``on`` names reasons such as ``GRPC_ABORTED``, and is ``GRPC_UNAVAILABLE`` without.
            Or the service's own config: each method has its policy, or is not retried, and the throttle is shared by
            all channels to this target.
        credentials: for a secure channel; by default it is insecure.
        options: of the channel.
        compression: of the channel.

    Raises:
        PolicyValueError: the policy's ``on`` is a function or the policy a combination; the config has a hedging
            policy, which needs `aio_channel`; or the options ask for the library's own retries.
    """
    calls = Calls(target, policy)
    calls.refuse_hedges()
    given = _options(options)
    plain = (
        grpc.insecure_channel(target, given, compression)
        if credentials is None
        else grpc.secure_channel(target, credentials, given, compression)
    )
    return grpc.intercept_channel(plain, Interceptor(calls, _state_of(plain)))


def aio_channel(
    target: str,
    policy: Policy | ServiceConfig,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    options: Options = (),
    compression: grpc.Compression | None = None,
) -> grpc.aio.Channel:
    """A channel for asyncio whose calls are retried, or hedged; see `channel`."""
    calls = Calls(target, policy)
    interceptors = [kind(calls) for kind in (AsyncUnary, AsyncStream, AsyncRequests)]
    given = _options(options)
    made = (
        grpc.aio.insecure_channel(target, given, compression, interceptors)
        if credentials is None
        else grpc.aio.secure_channel(target, credentials, given, compression, interceptors)
    )
    for each in interceptors:
        each.channel = made
    return made


def _options(options: Options) -> list[tuple[str, Any]]:
    if any(name == _RETRIES and value for name, value in options):
        raise PolicyValueError(f"options: {_RETRIES} is on, but this channel retries by its policy: leave it out")
    return [*(each for each in options if each[0] != _RETRIES), (_RETRIES, 0)]


def _state_of(plain: Any) -> Callable[[], bool]:
    """What tells whether a channel is connected at this moment; where nothing does: yes, which proves nothing."""
    check = getattr(getattr(plain, "_channel", None), "check_connectivity_state", None)
    ready = grpc.ChannelConnectivity.READY.value[0]
    return lambda: check is None or check(False) == ready  # noqa: FBT003 - the library's; False: do not connect
