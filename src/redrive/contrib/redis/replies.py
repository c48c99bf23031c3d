"""Classification of redis-py's errors: error replies by their code, connection failures by evidence.

An error reply shows that the command was received and not executed: its stage is *answered*, and its code decides
whether a retry can succeed (`REPLIES`). A connection failure is *not sent* with evidence: the pool could not connect
(marked by the client of `redrive.contrib.redis.wrap`), its cause is a refused connection, or the pool is exhausted.
Otherwise it is *in flight*.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from redrive.contrib import extra
from redrive.errors.foreign import attribute, cause_of, context_of, is_a, set_attribute
from redrive.policy import Failure, Stage
from redrive.policy.failure import Lasting

with extra("redis"):
    from redis import exceptions

NOT_AVAILABLE, LOST = "SOCKET_NOT_AVAILABLE", "SOCKET_CLOSED_WHILE_IN_FLIGHT"
"""The reasons of Couchbase RFC 0049 for a failed connection attempt and for a lost connection."""

MARK = "redrive_stage"
"""The attribute of an exception with the stage of its command, set by `mark`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The treatment of an error reply.

    Attributes:
        code: the first word of the reply.
        retryable: True if the command may succeed a little later.
        why: the cause of the reply, with the setting or document that describes it.
        reconnect: True if another server may be the right one, so that the client makes new connections.
    """

    code: str
    retryable: bool
    why: str
    reconnect: bool = False

    @property
    def reason(self) -> str:
        """Return the reason of a failure with this code, for ``on`` and for rules: ``REDIS_LOADING``."""
        return f"REDIS_{self.code}"


_REPLIES = (
    Reply("BUSY", retryable=True, why="a script blocks all other commands (server.c, shared.slowscripterr)"),
    Reply("CLUSTERDOWN", retryable=True, why="a slot has no server at the moment (cluster specification)"),
    Reply("LOADING", retryable=True, why="the dataset is being read from disk (documentation, replication)"),
    Reply(
        "MASTERDOWN", retryable=True, why="a replica without its master (replica-serve-stale-data no)", reconnect=True
    ),
    Reply("NOREPLICAS", retryable=True, why="too few replicas to write (min-replicas-to-write)"),
    Reply("OOM", retryable=True, why="no memory for a write; keys expire (maxmemory)"),
    Reply("READONLY", retryable=True, why="a replica received a write after a failover", reconnect=True),
    Reply("TRYAGAIN", retryable=True, why="the keys are being moved to another server (cluster specification)"),
    Reply("WATCH", retryable=True, why="a watched key was changed; EXEC has done nothing (documentation, EXEC)"),
    Reply("ASK", retryable=False, why="needs a client for clusters (cluster specification)"),
    Reply("CROSSSLOT", retryable=False, why="the keys belong to different servers (cluster specification)"),
    Reply("DENIED", retryable=False, why="protected mode (protected-mode)"),
    Reply("ERR", retryable=False, why="the command is wrong"),
    Reply("EXECABORT", retryable=False, why="a command of the transaction was refused (documentation, MULTI)"),
    Reply("MISCONF", retryable=False, why="cannot save to disk, so it takes no writes (stop-writes-on-bgsave-error)"),
    Reply("MOVED", retryable=False, why="needs a client for clusters (cluster specification)"),
    Reply("NOAUTH", retryable=False, why="no credentials were given, or wrong ones (documentation, AUTH)"),
    Reply("NOPERM", retryable=False, why="the user may not do this (documentation, ACL)"),
    Reply("NOSCRIPT", retryable=False, why="the script is unknown: load it (documentation, EVALSHA)"),
    Reply("WRONGTYPE", retryable=False, why="the key holds another type (documentation, data types)"),
)

REPLIES: Mapping[str, Reply] = MappingProxyType({row.code: row for row in _REPLIES})
"""The treatment of each code; any other error reply is final."""

# redis-py removes the code from the message of errors that have their own class; for these the class determines the
# code. BusyLoadingError and AuthenticationError are error replies although they derive from ConnectionError.
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.AuthenticationError, "NOAUTH"),
    (exceptions.AuthorizationError, "NOAUTH"),
    (exceptions.WatchError, "WATCH"),
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ExecAbortError, "EXECABORT"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.NoPermissionError, "NOPERM"),
    # MasterDownError and MovedError stand before their base classes.
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
)
# The end of redis-py's prefix for errors in a pipeline.
_IN_PIPELINE = " of pipeline caused error: "
_UNREACHABLE = (ConnectionRefusedError, socket.gaierror)
_FULL = exceptions.MaxConnectionsError


def code_of(error: BaseException) -> str | None:
    """Return the code of an error reply; None for other errors."""
    for kind, code in _CLASSES:
        if is_a(error, kind):
            return code
    if not is_a(error, exceptions.ResponseError):
        return None
    before, sign, after = str(error).partition(_IN_PIPELINE)
    first = (after if sign else before).partition(" ")[0]
    return first if first in REPLIES else "ERR"


def mark(error: BaseException, stage: Stage) -> None:
    """Store the stage of a command on its exception."""
    set_attribute(error, MARK, stage)


def failure_of(error: BaseException) -> Failure | None:
    """Describe an exception of redis-py for a policy, as its ``on``; None for others, such as encoding errors.

    The reason of an error reply is ``REDIS_`` and its code; it is lasting if a retry would get the same reply.
    That of a connection failure is ``SOCKET_NOT_AVAILABLE``, ``SOCKET_CLOSED_WHILE_IN_FLIGHT`` or ``TIMEOUT``.
    """
    marked: Stage | None = attribute(error, MARK)
    code = code_of(error)
    if code is not None:
        row = REPLIES[code]
        failure = Failure.of(error, reason=row.reason, stage=marked or Stage.ANSWERED)
        return failure if row.retryable else failure._replace(lasting=Lasting(stage=failure.stage))
    if not is_a(error, (exceptions.ConnectionError, exceptions.TimeoutError)):
        return None
    if marked is Stage.NOT_SENT or is_a(error, _FULL) or is_a(_origin(error), _UNREACHABLE):
        return Failure.of(error, reason=NOT_AVAILABLE, stage=Stage.NOT_SENT)
    reason = "TIMEOUT" if is_a(error, exceptions.TimeoutError) else LOST
    return Failure.of(error, reason=reason, stage=Stage.IN_FLIGHT)


def _origin(error: BaseException) -> BaseException | None:
    return cause_of(error) or context_of(error)
