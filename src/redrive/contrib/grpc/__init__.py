"""gRPC's retry rules (gRFC A6): service configs, transparent retries, and channels that retry calls.

==================  =====================================================================================
`service_config`    ``retryPolicy``, ``hedgingPolicy`` and ``retryThrottling`` of a service config
`progress`          status codes, how far an RPC got, and the failure on which a policy decides
`classify`          the failure that an error of the library ``grpcio`` describes
`methods`           the idempotency that ``.proto`` files declare
`channels`          sync and async channels of ``grpcio`` that retry calls
==================  =====================================================================================

Only `channels` imports ``grpcio``, and it is loaded on first use. The other modules serve clients of any kind that call
gRPC services, and policies that must be the same on both sides of a gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.contrib.grpc.classify import describe
from redrive.contrib.grpc.progress import Code, Handling, ProgressRow, RpcProgress, failure_of, row_of, transparently
from redrive.contrib.grpc.service_config import (
    MethodConfig,
    ServiceConfig,
    read_hedging_policy,
    read_retry_policy,
    read_retry_throttling,
    read_service_config,
)

if TYPE_CHECKING:
    from redrive.contrib.grpc.channels import aio_channel, channel

__all__ = [
    "Code",
    "Handling",
    "MethodConfig",
    "ProgressRow",
    "RpcProgress",
    "ServiceConfig",
    "aio_channel",
    "channel",
    "describe",
    "failure_of",
    "read_hedging_policy",
    "read_retry_policy",
    "read_retry_throttling",
    "read_service_config",
    "row_of",
    "transparently",
]


def __getattr__(name: str) -> Any:
    """Load the functions that need ``grpcio``."""
    if name not in {"aio_channel", "channel"}:
        raise AttributeError(f"module 'redrive.contrib.grpc' has no attribute {name!r}")
    from redrive.contrib.grpc import channels

    return getattr(channels, name)
