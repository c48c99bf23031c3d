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

__all__ = [
    "OPERATIONS",
    "SERVICES",
    "CouchbaseOperation",
    "Family",
    "Idempotent",
    "ServiceRow",
    "is_idempotent",
    "payload_timeout",
]


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
    """Everything else."""


@dataclass(frozen=True, slots=True)
class CouchbaseOperation:
    """One operation of the key-value service."""

    #: The name in the RFCs and SDKs.
    name: str
    opcode: int
    #: The condition under which the operation is idempotent.
    idempotent: Idempotent = Idempotent.NO
    #: The family of operations.
    family: Family = Family.DATA


_ROWS = (
    CouchbaseOperation("get", 0x00, Idempotent.YES),
    CouchbaseOperation("get_replica", 0x83, Idempotent.YES),
    CouchbaseOperation("get_any_replica", 0x83, Idempotent.YES),
    CouchbaseOperation("get_all_replicas", 0x83, Idempotent.YES),
    CouchbaseOperation("lookup_in", 0xD0, Idempotent.YES),
    CouchbaseOperation("lookup_in_any_replica", 0xD0, Idempotent.YES),
    CouchbaseOperation("lookup_in_all_replicas", 0xD0, Idempotent.YES),
    CouchbaseOperation("noop", 0x0A, Idempotent.YES),
    CouchbaseOperation("get_collection_id", 0xBB, Idempotent.YES),
    CouchbaseOperation("get_collection_manifest", 0xBA, Idempotent.YES),
    CouchbaseOperation("observe_cas", 0x92, Idempotent.YES),
    CouchbaseOperation("observe_seqno", 0x91, Idempotent.YES),
    CouchbaseOperation("carrier_config", 0xB5, Idempotent.YES),
    CouchbaseOperation("global_config", 0xB5, Idempotent.YES),
    CouchbaseOperation("exists", 0xA0, Idempotent.EXTENDED),
    CouchbaseOperation("get_meta", 0xA0, Idempotent.EXTENDED),
    CouchbaseOperation("get_random", 0xB6, Idempotent.EXTENDED),
    CouchbaseOperation("stat", 0x10, Idempotent.EXTENDED),
    CouchbaseOperation("version", 0x0B, Idempotent.EXTENDED),
    CouchbaseOperation("upsert", 0x01),
    CouchbaseOperation("insert", 0x02),
    CouchbaseOperation("replace", 0x03),
    CouchbaseOperation("remove", 0x04),
    CouchbaseOperation("increment", 0x05),
    CouchbaseOperation("decrement", 0x06),
    CouchbaseOperation("append", 0x0E),
    CouchbaseOperation("prepend", 0x0F),
    CouchbaseOperation("touch", 0x1C),
    CouchbaseOperation("get_and_touch", 0x1D),
    CouchbaseOperation("get_and_lock", 0x94),
    CouchbaseOperation("unlock", 0x95),
    CouchbaseOperation("mutate_in", 0xD1),
    CouchbaseOperation("range_scan_create", 0xDA, Idempotent.EXTENDED, Family.SCAN),
    CouchbaseOperation("range_scan_continue", 0xDB, family=Family.SCAN),
    CouchbaseOperation("range_scan_cancel", 0xDC, family=Family.SCAN),
    CouchbaseOperation("hello", 0x1F, family=Family.BOOTSTRAP),
    CouchbaseOperation("sasl_list_mechanisms", 0x20, family=Family.BOOTSTRAP),
    CouchbaseOperation("sasl_auth", 0x21, family=Family.BOOTSTRAP),
    CouchbaseOperation("sasl_step", 0x22, family=Family.BOOTSTRAP),
    CouchbaseOperation("select_bucket", 0x89, family=Family.BOOTSTRAP),
    CouchbaseOperation("get_error_map", 0xFE, family=Family.BOOTSTRAP),
    CouchbaseOperation("dcp_open", 0x50, family=Family.DCP),
    CouchbaseOperation("dcp_add_stream", 0x51, family=Family.DCP),
    CouchbaseOperation("dcp_close_stream", 0x52, family=Family.DCP),
    CouchbaseOperation("dcp_stream_request", 0x53, family=Family.DCP),
    CouchbaseOperation("dcp_get_failover_log", 0x54, family=Family.DCP),
    CouchbaseOperation("dcp_noop", 0x5C, family=Family.DCP),
    CouchbaseOperation("dcp_buffer_ack", 0x5D, family=Family.DCP),
    CouchbaseOperation("dcp_control", 0x5E, family=Family.DCP),
)

#: The operations of the key-value service by name.
OPERATIONS: Mapping[str, CouchbaseOperation] = MappingProxyType({row.name: row for row in _ROWS})


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """The condition under which a request to an HTTP service is idempotent."""

    service: str
    #: The option of the request that decides; "" if all requests are idempotent.
    option: str = ""
    #: The value that the option must have.
    value: str | bool = True


#: The other services by name.
SERVICES: Mapping[str, ServiceRow] = MappingProxyType(
    {
        row.service: row
        for row in (
            ServiceRow("query", "readonly"),
            ServiceRow("analytics", "readonly"),
            # Reads only, although it is a POST.
            ServiceRow("search"),
            ServiceRow("views"),
            # PUT and DELETE are not idempotent in the RFC, unlike in HTTP.
            ServiceRow("manager", "method", "GET"),
            ServiceRow("management", "method", "GET"),
            ServiceRow("eventing", "method", "GET"),
        )
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
        return row.idempotent is Idempotent.YES or (
            row.idempotent is Idempotent.EXTENDED and profile is Profile.EXTENDED
        )
    rule = SERVICES.get(service)
    if rule is None:
        raise PolicyValueError(f"{service!r} is no service of Couchbase: give one of {', '.join(('kv', *SERVICES))}")
    return not rule.option or options.get(rule.option) == rule.value


def payload_timeout(timeout: timedelta, elapsed: timedelta) -> timedelta:
    """Return the timeout to write into the body of a query or analytics request, not below zero.

    The server must not work longer than the client waits: a repeated request gets the remaining time, not the whole
    time again (as in the Go SDK).
    """
    return max(timeout - elapsed, timedelta(0))
