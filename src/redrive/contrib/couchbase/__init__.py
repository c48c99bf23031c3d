"""RFC 0049 for Couchbase: retry rules as tables, and the errors of the official SDK with their true meaning.

For every service of a Couchbase cluster the package answers the same question: may a failed dispatch be repeated, and
which error does the caller get otherwise? `Verdict` is the answer. It does no I/O and reads no clock;
`redrive.orchestrator` retries by it, or a `redrive.Policy` by way of `Verdict.failure`.

======================  ==============================================================================
`kv`                    statuses of the key-value service
`errormap`              the server's own error map, for statuses that the client does not list
`query`, `analytics`    services with error codes (`service` reads them)
`bodies`                search and views: HTTP statuses, and texts in the body
`transport`, `rpc`      connections that fail, exceptions of HTTP clients, gRPC
`operations`            the idempotent operations
`sdk`                   the official Python SDK: its errors as verdicts, its operations under an orchestrator
======================  ==============================================================================

Sources: RFC 0049 (retry handling, revision 13), RFC 0058 (errors), RFC 0013 and RFC 0069 (error map), and the SDKs
where the RFCs are silent. `Profile.STRICT` is RFC 0049 without additions.
"""

from redrive.contrib.couchbase.analytics import classify_analytics, classify_enterprise_analytics
from redrive.contrib.couchbase.bodies import classify_search, classify_views
from redrive.contrib.couchbase.errormap import ErrorMap, ErrorMapReading, RetrySpec, read_error_map
from redrive.contrib.couchbase.kv import classify_kv
from redrive.contrib.couchbase.operations import is_idempotent, payload_timeout
from redrive.contrib.couchbase.query import classify_query
from redrive.contrib.couchbase.rpc import classify_grpc
from redrive.contrib.couchbase.service import ServiceError, read_service_errors
from redrive.contrib.couchbase.transport import classify_event, classify_exception, classify_http_status
from redrive.contrib.couchbase.verdict import Profile, SdkError, Verdict

__all__ = [
    "ErrorMap",
    "ErrorMapReading",
    "Profile",
    "RetrySpec",
    "SdkError",
    "ServiceError",
    "Verdict",
    "classify_analytics",
    "classify_enterprise_analytics",
    "classify_event",
    "classify_exception",
    "classify_grpc",
    "classify_http_status",
    "classify_kv",
    "classify_query",
    "classify_search",
    "classify_views",
    "is_idempotent",
    "payload_timeout",
    "read_error_map",
    "read_service_errors",
]
