"""gRPC's retry rules (gRFC A6) in redrive's values: the service config, and the retries that no policy sees.

======================  ==============================================================================
`document`, `service`   ``retryPolicy``, ``hedgingPolicy`` and ``retryThrottling`` of a service config
`progress`              how far an RPC got, what gRPC does then, and the failure that a policy decides on
`codes`                 the status codes
======================  ==============================================================================

Nothing here needs gRPC's library: it is for clients of any kind that talk to gRPC services, and for policies that are
to be the same on both sides of a gateway.
"""

from __future__ import annotations

from redrive.contrib.grpc.codes import Code
from redrive.contrib.grpc.document import read_hedging_policy, read_retry_policy, read_retry_throttling
from redrive.contrib.grpc.progress import Handling, Progress, ProgressRow, failure_of, row_of, transparently
from redrive.contrib.grpc.service import MethodConfig, ServiceConfig, read_service_config

__all__ = [
    "Code",
    "Handling",
    "MethodConfig",
    "Progress",
    "ProgressRow",
    "ServiceConfig",
    "failure_of",
    "read_hedging_policy",
    "read_retry_policy",
    "read_retry_throttling",
    "read_service_config",
    "row_of",
    "transparently",
]
