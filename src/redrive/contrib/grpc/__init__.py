"""gRPC's retry rules (gRFC A6) in redrive's values: the service config, and the retries that no policy sees.

======================  ==============================================================================
`document`, `service`   ``retryPolicy``, ``hedgingPolicy`` and ``retryThrottling`` of a service config
`progress`              how far an RPC got, what gRPC does then, and the failure that a policy decides on
`codes`                 the status codes
`proof`                 what an error of gRPC's library proves
`channels`              channels of gRPC's library whose calls are retried, in both colours
======================  ==============================================================================

Only `channels` needs gRPC's library, and is loaded when it is asked for: the rest is for clients of any kind that talk
to gRPC services, and for policies that are to be the same on both sides of a gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.contrib.grpc.codes import Code
from redrive.contrib.grpc.document import read_hedging_policy, read_retry_policy, read_retry_throttling
from redrive.contrib.grpc.progress import Handling, Progress, ProgressRow, failure_of, row_of, transparently
from redrive.contrib.grpc.proof import describe
from redrive.contrib.grpc.service import MethodConfig, ServiceConfig, read_service_config

if TYPE_CHECKING:
    from redrive.contrib.grpc.channels import aio_channel, channel

__all__ = [
    "Code",
    "Handling",
    "MethodConfig",
    "Progress",
    "ProgressRow",
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


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a function
    """Load what needs gRPC's library."""
    if name not in {"aio_channel", "channel"}:
        raise AttributeError(f"module 'redrive.contrib.grpc' has no attribute {name!r}")
    from redrive.contrib.grpc import channels

    return getattr(channels, name)
