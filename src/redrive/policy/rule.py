"""Rules: different treatment for some failures."""

from __future__ import annotations

from collections.abc import Iterable

from redrive.errors import PolicyValueError
from redrive.policy.backoff import Backoff, BackoffFunction, schedule_of
from redrive.policy.classify import names_of
from redrive.policy.value import Value, check_attempts, freeze


class Rule(Value):
    """The treatment of one kind of failure.

    A rule with its own ``attempts`` has its own count: its failures do not use up the policy's attempts, and the
    policy's limit does not end it. A rule with its own ``backoff`` starts it at its own first failure. Other fields
    are the policy's.

    Args:
        on: exception types, their qualified names, or names of reasons.
        backoff: its schedule of delays, or a function (`Backoff.calling`); None for the policy's.
        attempts: failures of this kind, the last one being final; None for the policy's limit.

    Raises:
        PolicyValueError: ``on`` is empty, or ``attempts`` is less than 1.
    """

    on: tuple[str, ...]
    backoff: Backoff | None
    attempts: int | None

    def __init__(
        self,
        on: type[BaseException] | str | Iterable[type[BaseException] | str],
        *,
        backoff: Backoff | BackoffFunction | None = None,
        attempts: int | None = None,
    ) -> None:
        if callable(on) and not isinstance(on, type):
            raise PolicyValueError(
                "a rule takes names, not a classifier: let the policy's classifier return a reason, and name that"
            )
        freeze(self, "on", names_of(on, "Rule.on"))
        freeze(self, "backoff", None if backoff is None else schedule_of(backoff, "Rule.backoff"))
        freeze(self, "attempts", check_attempts(attempts, "Rule.attempts"))

    def name(self, position: int) -> str:
        """Return the name that decisions show, such as ``rule 2 (httpx.ReadTimeout)``; positions count from 1."""
        return f"rule {position} ({', '.join(name.removeprefix('builtins.') for name in self.on)})"
