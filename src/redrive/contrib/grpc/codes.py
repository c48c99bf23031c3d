"""gRPC's status codes, and whether a code alone proves that the application has answered.

``UNAVAILABLE`` may come from the server, from a proxy behind which the server has done the work, or from the client's
own library. After such a code it is unknown whether the call took effect, unless `redrive.contrib.grpc.RpcProgress`
proves more.
"""

from __future__ import annotations

from enum import IntEnum

from redrive.errors import PolicyValueError
from redrive.policy import Stage


class Code(IntEnum):
    """A status code of gRPC."""

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
    def of(cls, value: object) -> Code:
        """Read a code from its number or its name; raise PolicyValueError if there is no such code."""
        # gRFC A6 allows names in any case. Many JSON parsers return whole numbers as floats.
        if isinstance(value, str):
            found = cls.__members__.get(value.upper()) if value.isascii() else None
        elif isinstance(value, int | float) and not isinstance(value, bool) and value in _NUMBERS:
            found = cls(int(value))
        else:
            found = None
        if found is None:
            raise PolicyValueError(
                f"{value!r} is not a status code of gRPC: give a number from 0 to 16, or a name such as UNAVAILABLE"
            )
        return found

    @property
    def reason(self) -> str:
        """Return the reason of a failure with this code, for ``on`` and for rules: ``GRPC_UNAVAILABLE``."""
        return f"GRPC_{self.name}"

    @property
    def stage(self) -> Stage:
        """Return what the code alone proves: ``ANSWERED`` or, without proof, ``IN_FLIGHT``."""
        return Stage.ANSWERED if self in _ANSWERS else Stage.IN_FLIGHT


_NUMBERS = frozenset(code.value for code in Code)
# A code is an answer if no library generates it on the way (gRPC documents which codes its libraries generate).
# RESOURCE_EXHAUSTED is missing: clients generate it for a response that is too long, after all work has been done.
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
        # Servers' libraries generate these two as well, before they call the application.
        Code.UNIMPLEMENTED,
        Code.UNAUTHENTICATED,
    }
)
