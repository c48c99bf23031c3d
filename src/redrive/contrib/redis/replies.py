"""What an error of redis-py means for a retry: error replies by their code, and failures of the connection by proof.

An error reply says that the command was looked at and not executed, so that its stage is *answered* and a retry is a
question of sense only: `REPLIES`. A failure of the connection says nothing of the kind. It was *not sent* if there is
proof: the connection could not be had (the client that `redrive.contrib.redis.wrap` gives marks that), its refusal is
the cause of the error, or the pool had none left. Else it is *in flight*.

redis-py cuts the code off the message of those errors for which it has a class, so the code is read from the class
there. One trap: ``BusyLoadingError`` and ``AuthenticationError`` are error replies, and ``ConnectionError`` too.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from redis import exceptions

from redrive.policy import Failure, Stage

__all__ = ["LOST", "MARK", "NOT_AVAILABLE", "REPLIES", "Reply", "code_of", "failure_of", "mark"]

NOT_AVAILABLE, LOST = "SOCKET_NOT_AVAILABLE", "SOCKET_CLOSED_WHILE_IN_FLIGHT"
"""The reasons of RFC 0049 for a connection that could not be had, and for one that was lost."""

MARK = "redrive_stage"
"""The attribute of an exception that says how far its command got, where that is known from elsewhere."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What follows from the code of an error reply.

    Attributes:
        code: its first word.
        again: whether it may go well a little later.
        why: what the server says by it, and where that is written.
        elsewhere: whether another server should be asked then, so that connections are made anew.
    """

    code: str
    again: bool
    why: str
    elsewhere: bool = False

    @property
    def reason(self) -> str:
        """The reason of a failure with this code, for ``on`` and for rules: ``REDIS_LOADING``."""
        return f"REDIS_{self.code}"


REPLIES: Mapping[str, Reply] = MappingProxyType(
    {
        row.code: row
        for row in (
            Reply("BUSY", again=True, why="a script runs, nothing else does (server.c, shared.slowscripterr)"),
            Reply("CLUSTERDOWN", again=True, why="a slot has no server at the moment (cluster specification)"),
            Reply("LOADING", again=True, why="the dataset is being read from disk (documentation, replication)"),
            Reply(
                "MASTERDOWN",
                again=True,
                why="a replica without its master (replica-serve-stale-data no)",
                elsewhere=True,
            ),
            Reply("NOREPLICAS", again=True, why="too few replicas to write (min-replicas-to-write)"),
            Reply("OOM", again=True, why="no memory for a write; keys expire (maxmemory)"),
            Reply("READONLY", again=True, why="a replica was asked to write: there was a failover", elsewhere=True),
            Reply("TRYAGAIN", again=True, why="the keys are being moved to another server (cluster specification)"),
            Reply("WATCH", again=True, why="a watched key was changed; EXEC has done nothing (documentation, EXEC)"),
            Reply("ASK", again=False, why="needs a client for clusters (cluster specification)"),
            Reply("CROSSSLOT", again=False, why="the keys belong to different servers (cluster specification)"),
            Reply("DENIED", again=False, why="protected mode (protected-mode)"),
            Reply("ERR", again=False, why="the command is wrong"),
            Reply("EXECABORT", again=False, why="a command of the transaction was refused (documentation, MULTI)"),
            Reply(
                "MISCONF", again=False, why="cannot save to disk, so it takes no writes (stop-writes-on-bgsave-error)"
            ),
            Reply("MOVED", again=False, why="needs a client for clusters (cluster specification)"),
            Reply("NOAUTH", again=False, why="no credentials were given, or wrong ones (documentation, AUTH)"),
            Reply("NOPERM", again=False, why="the user may not do this (documentation, ACL)"),
            Reply("NOSCRIPT", again=False, why="the script is unknown: load it (documentation, EVALSHA)"),
            Reply("WRONGTYPE", again=False, why="the key holds another type (documentation, data types)"),
        )
    }
)
"""What follows, by code; any other error reply is final."""

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
    (exceptions.MasterDownError, "MASTERDOWN"),  # before its base
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.MovedError, "MOVED"),  # before its base
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
)
_IN_PIPELINE = " of pipeline caused error: "  # what redis-py puts before the message
_UNREACHABLE = (ConnectionRefusedError, socket.gaierror)
_FULL = exceptions.MaxConnectionsError


def code_of(error: BaseException) -> str | None:
    """The code of an error reply; None if it is none."""
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    if not isinstance(error, exceptions.ResponseError):
        return None
    before, sign, after = str(error).partition(_IN_PIPELINE)
    first = (after if sign else before).partition(" ")[0]
    return first if first in REPLIES else "ERR"


def mark(error: BaseException, stage: Stage) -> None:
    """Write down on an exception how far its command got."""
    setattr(error, MARK, stage)


def failure_of(error: BaseException) -> Failure | None:
    """Describe an exception of redis-py for a policy, as its ``on``.

    Args:
        error: what a command raised.

    Returns:
        The failure. Its reason is ``REDIS_LOADING`` and so on for error replies, which are no candidates where a retry
        would be answered in the same way; ``SOCKET_NOT_AVAILABLE``, ``SOCKET_CLOSED_WHILE_IN_FLIGHT`` or ``TIMEOUT``
        for the connection. None for what is neither, such as arguments that cannot be encoded.
    """
    told: Stage | None = getattr(error, MARK, None)
    code = code_of(error)
    if code is not None:
        row = REPLIES[code]
        said = Failure.of(error, reason=row.reason, stage=told or Stage.ANSWERED)
        return said if row.again else said._replace(candidate=False)
    if not isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError):
        return None
    if told is Stage.NOT_SENT or isinstance(error, _FULL) or isinstance(_origin(error), _UNREACHABLE):
        return Failure.of(error, reason=NOT_AVAILABLE, stage=Stage.NOT_SENT)
    reason = "TIMEOUT" if isinstance(error, exceptions.TimeoutError) else LOST
    return Failure.of(error, reason=reason, stage=Stage.IN_FLIGHT)


def _origin(error: BaseException) -> BaseException | None:
    return error.__cause__ or error.__context__
