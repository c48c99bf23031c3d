"""What a handler returns that leaves the end of its attempt to somebody else."""

from __future__ import annotations

from datetime import timedelta

from redrive.policy import parse_duration

__all__ = ["Pending"]


class Pending:
    """Returned by a handler: somebody outside will say how this attempt ended.

    The worker's slot is free again; the job waits for `App.complete` or `App.fail`, which name the attempt by the
    handler's ``ctx.attempt_uid``. Where none of them comes in time, the attempt has failed with the reason ``TIMEOUT``,
    and the policy decides.

    Args:
        timeout: how long to wait: a ``timedelta``, seconds, or text such as ``"1h"``.

    Raises:
        PolicyError: the timeout cannot be read.
    """

    __slots__ = ("timeout",)

    def __init__(self, timeout: timedelta | float | str) -> None:
        self.timeout = parse_duration(timeout)

    def __repr__(self) -> str:
        """Say for how long."""
        return f"Pending({self.timeout!r})"
