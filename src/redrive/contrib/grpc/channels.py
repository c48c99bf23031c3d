"""Channels of ``grpcio`` that retry calls under a policy or a service config.

`channel` and `aio_channel` return channels on which stubs are made as usual. They disable the retries of ``grpcio``
(``grpc.enable_retries``), so that calls are not retried twice, and install interceptors:
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redrive.contrib import extra
from redrive.contrib.grpc.interceptors import (
    AsyncStreamUnaryInterceptor,
    AsyncUnaryStreamInterceptor,
    AsyncUnaryUnaryInterceptor,
    MethodPolicies,
    SyncInterceptor,
)
from redrive.contrib.grpc.service_config import ServiceConfig
from redrive.errors import PolicyValueError
from redrive.policy import Policy

with extra("grpc"):
    import grpc
    import grpc.aio

ChannelOptions = Sequence[tuple[str, Any]]
_RETRIES = "grpc.enable_retries"


def channel(
    target: str,
    policy: Policy | ServiceConfig,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    options: ChannelOptions = (),
    compression: grpc.Compression | None = None,
) -> grpc.Channel:
    """Open a channel for sync code that retries calls.

    Args:
        target: the server, as in ``grpc.insecure_channel``.
        policy: the policy of all calls; its ``on`` names reasons such as ``GRPC_ABORTED``, by default
            ``GRPC_UNAVAILABLE``. If it leaves ``idempotent`` open, the ``idempotency_level`` of each method in its
            ``.proto`` file decides (`redrive.contrib.grpc.interceptors`). Or a service config: each method has its
            policy or is not retried, and all channels to this target share the throttle.
        credentials: for a secure channel; without them it is insecure.
        options: as in ``grpc.insecure_channel``.
        compression: as in ``grpc.insecure_channel``.

    Raises:
        PolicyValueError: the policy's ``on`` is a function or the policy a combination; the config has a hedging
            policy, which needs `aio_channel`; or the options enable the retries of ``grpcio``.
    """
    policies = MethodPolicies(target, policy)
    policies.refuse_hedges()
    given = _without_retries(options)
    plain = (
        grpc.insecure_channel(target, given, compression)
        if credentials is None
        else grpc.secure_channel(target, credentials, given, compression)
    )
    return grpc.intercept_channel(plain, SyncInterceptor(policies, _connected_check(plain)))


def aio_channel(
    target: str,
    policy: Policy | ServiceConfig,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    options: ChannelOptions = (),
    compression: grpc.Compression | None = None,
) -> grpc.aio.Channel:
    """Open a channel for asyncio that retries or hedges calls; see `channel`."""
    policies = MethodPolicies(target, policy)
    kinds = (AsyncUnaryUnaryInterceptor, AsyncUnaryStreamInterceptor, AsyncStreamUnaryInterceptor)
    interceptors = [kind(policies) for kind in kinds]
    given = _without_retries(options)
    made = (
        grpc.aio.insecure_channel(target, given, compression, interceptors)
        if credentials is None
        else grpc.aio.secure_channel(target, credentials, given, compression, interceptors)
    )
    for each in interceptors:
        each.channel = made
    return made


def _without_retries(options: ChannelOptions) -> list[tuple[str, Any]]:
    if any(name == _RETRIES and value for name, value in options):
        raise PolicyValueError(f"options: {_RETRIES} is on, but this channel retries by its policy: leave it out")
    return [*(each for each in options if each[0] != _RETRIES), (_RETRIES, 0)]


def _connected_check(plain: object) -> Callable[[], bool]:
    # grpcio has no public way to read the state of a sync channel at once. If the private one is missing, every channel
    # counts as connected: then no call is proved unsent, and fewer calls are repeated.
    check = getattr(getattr(plain, "_channel", None), "check_connectivity_state", None)
    ready = grpc.ChannelConnectivity.READY.value[0]
    return lambda: check is None or check(False) == ready  # noqa: FBT003 - the library's; False: do not connect
