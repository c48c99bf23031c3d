"""gRPC's status codes: by number or by name, what they prove, and what a policy calls them.

A code says what somebody thought of a call, not who thought so. ``UNAVAILABLE`` may come from the server, from a proxy
behind which the server has done the work, or from the client's own library that has lost the connection. So a code is
taken as an answer only if no library makes it up on the way (the list of codes that gRPC's libraries generate is part
of its documentation); after any other nobody knows whether the call took effect, unless `redrive.contrib.grpc.Progress`
proves more.
"""

from __future__ import annotations

from enum import IntEnum

from redrive.errors import PolicyValueError
from redrive.policy import Stage

__all__ = ["Code"]


class Code(IntEnum):
    """The status codes of gRPC. ``Code.of`` reads them, ``code.reason`` is their name in a policy."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def of(cls, said: object) -> Code:
        """Read a code.

        Args:
            said: its number, or its name in upper, lower or mixed case (gRFC A6). A whole number may be a float, which
                is what many readers of JSON make of every number.

        Raises:
            PolicyValueError: there is no such code.
        """
        if isinstance(said, str):
            found = cls.__members__.get(said.upper()) if said.isascii() else None
        elif isinstance(said, int | float) and not isinstance(said, bool) and said in _NUMBERS:
            found = cls(int(said))
        else:
            found = None
        if found is None:
            raise PolicyValueError(
                f"{said!r} is no status code of gRPC: give a number from 0 to 16, or a name such as UNAVAILABLE"
            )
        return found

    @property
    def reason(self) -> str:
        """The reason of a failure with this code, for ``on`` and for rules: ``GRPC_UNAVAILABLE``."""
        return f"GRPC_{self.name}"

    @property
    def stage(self) -> Stage:
        """What the code alone proves: that the application has answered, or nothing."""
        return Stage.ANSWERED if self in _ANSWERS else Stage.IN_FLIGHT


_NUMBERS = frozenset(code.value for code in Code)
_ANSWERS = frozenset(
    {
        Code.OK,
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.PERMISSION_DENIED,
        Code.FAILED_PRECONDITION,
        Code.ABORTED,
        Code.OUT_OF_RANGE,
        Code.UNIMPLEMENTED,  # made by libraries too, but by the server's, which then has found no application to call
        Code.UNAUTHENTICATED,  # the same: credentials are looked at before the call is
    }
)  # not RESOURCE_EXHAUSTED: clients make it of a response that is too long, when all work has been done
