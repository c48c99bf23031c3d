"""The idempotent operations: RFC 0049's list, as rows.

The RFC's *idempotent* means *read-only*: a key-value upsert that is sent twice has the same effect and yet is not in
the list, because another client may have written in between. Operations that are not listed are not idempotent. The
list omits a few read-only operations (``exists`` among them); the extended profile has them.

The list also decides whether a timeout in flight is ambiguous: that of a read-only operation never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from types import MappingProxyType

from redrive.contrib.couchbase.verdict import Profile
from redrive.errors import PolicyValueError


class Family(Enum):
    """The families of operations."""

    DATA = "data"
    """The operations of applications, and the client's own requests about the cluster."""
    SCAN = "scan"
    """Range scans, which hold state in the server between their steps."""
    BOOTSTRAP = "bootstrap"
    """Operations that open a connection; its owner retries the whole connection instead."""
    DCP = "dcp"
    """The change stream; RFC 0049 excludes it from the list of response codes."""


class Idempotent(Enum):
    """The condition under which an operation is idempotent."""

    YES = "yes"
    """RFC 0049 lists it."""
    EXTENDED = "extended"
    """It only reads, but the list has forgotten it."""
    NO = "no"
    """All others."""


@dataclass(frozen=True, slots=True)
class CouchbaseOperation:
    """One operation of the key-value service."""

    #: The name in the RFCs and SDKs.
    name: str
    family: Family
    #: The condition under which the operation is idempotent.
    idempotent: Idempotent


_ROWS: tuple[tuple[Family, Idempotent, str], ...] = (
    (Family.DATA, Idempotent.YES, "get get_replica get_any_replica get_all_replicas lookup_in lookup_in_any_replica"),
    (Family.DATA, Idempotent.YES, "lookup_in_all_replicas noop get_collection_id get_collection_manifest observe_cas"),
    (Family.DATA, Idempotent.YES, "observe_seqno carrier_config global_config"),
    (Family.DATA, Idempotent.EXTENDED, "exists get_meta get_random stat version"),
    (Family.DATA, Idempotent.NO, "upsert insert replace remove increment decrement append prepend touch get_and_touch"),
    (Family.DATA, Idempotent.NO, "get_and_lock unlock mutate_in"),
    (Family.SCAN, Idempotent.EXTENDED, "range_scan_create"),
    (Family.SCAN, Idempotent.NO, "range_scan_continue range_scan_cancel"),
    (Family.BOOTSTRAP, Idempotent.NO, "hello sasl_list_mechanisms sasl_auth sasl_step select_bucket get_error_map"),
    (Family.DCP, Idempotent.NO, "dcp_open dcp_add_stream dcp_close_stream dcp_stream_request dcp_get_failover_log"),
    (Family.DCP, Idempotent.NO, "dcp_noop dcp_buffer_ack dcp_control"),
)

#: The operations of the key-value service by name.
OPERATIONS: Mapping[str, CouchbaseOperation] = MappingProxyType(
    {
        name: CouchbaseOperation(name, family, idempotent)
        for family, idempotent, names in _ROWS
        for name in names.split()
    }
)

#: The other services by name: the option of a request, and the value that it must have for the request to be
#: idempotent; None if all requests are.
SERVICES: Mapping[str, tuple[str, object] | None] = MappingProxyType(
    {
        "query": ("readonly", True),
        "analytics": ("readonly", True),
        # It only reads, although it is a POST.
        "search": None,
        "views": None,
        # PUT and DELETE are not idempotent in the RFC, unlike in HTTP.
        # The last one is the generic client of RFC 0071, for any path of a node's HTTP interfaces.
        **dict.fromkeys(("manager", "management", "eventing", "http"), ("method", "GET")),
    }
)


def is_idempotent(
    service: str,
    operation: str = "",
    options: Mapping[str, object] = MappingProxyType({}),
    *,
    profile: Profile = Profile.EXTENDED,
) -> bool:
    """Return True if a request may be repeated when it is unknown if it took effect.

    Args:
        service: ``kv``, or a name of `SERVICES`.
        operation: for ``kv``, a name of `OPERATIONS`.
        options: for the other services: ``readonly`` or ``method``.
        profile: the list.

    Raises:
        PolicyValueError: the service is unknown.
    """
    if service == "kv":
        row = OPERATIONS.get(operation)
        if row is None:
            return False
        listed = row.idempotent
        return listed is Idempotent.YES or (listed is Idempotent.EXTENDED and profile is Profile.EXTENDED)
    if service not in SERVICES:
        raise PolicyValueError(f"{service!r} is no service of Couchbase: give one of {', '.join(('kv', *SERVICES))}")
    condition = SERVICES[service]
    return condition is None or options.get(condition[0]) == condition[1]


def payload_timeout(timeout: timedelta, elapsed: timedelta) -> timedelta:
    """Return the timeout to write into the body of a query or analytics request, not below zero.

    The server must not work longer than the client waits: a repeated request gets the remaining time, not the whole
    time again (as in the Go SDK).
    """
    return max(timeout - elapsed, timedelta(0))
