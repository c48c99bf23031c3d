"""The past of a call in the header of its message, for engines that keep nothing else between two attempts.

`Carried.to_dict` returns a JSON object::

    {"v": 1, "n": 2, "t": 1798761600.0, "d": 2.0, "r": [0, 1], "due": 1798761605.0, "lost": 0, "a": [[...], [...]]}

``n`` is the number of executions that are charged, ``t`` the start of the first one in seconds since 1970, ``d`` the
last delay in seconds, and ``r`` is `History.by_rule`. ``a`` has the last attempts, each as the fields of
`CarriedAttempt` in their order. The object has at most `SIZE` bytes, because brokers limit their headers: the oldest
attempts are left out first, and the counters never.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from redrive.errors import PolicyValueError
from redrive.policy.decision import History
from redrive.policy.failure import Failure
from redrive.policy.stage import Stage
from redrive.policy.value import NamedTuple, whole

__all__ = ["Carried", "CarriedAttempt"]

VERSION = 1
"""The form of the object, and the only one that is read here."""

SIZE = 8 * 1024
"""Bytes of the object as JSON. The headers of a message of RabbitMQ must fit in a frame, which has 128 KiB."""

ATTEMPTS = 20
"""Attempts that are carried."""

TEXT = 200
"""Characters of an error that are carried, from its beginning."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CarriedAttempt(NamedTuple):
    """A failed attempt, as the message of its call carries it."""

    #: The start of the attempt, aware.
    at: datetime
    #: The qualified name of the exception's class; "" without an exception.
    error_type: str
    #: The first characters of the error.
    error: str
    #: How far the call got.
    stage: Stage
    #: Name of a reason; see `redrive.policy.reason`.
    reason: str
    #: The source of the delay, as in `redrive.policy.Retry`; the reason of the end, as in `redrive.policy.GiveUp`.
    rule: str
    #: The wait before the next attempt; None if none follows.
    delay: timedelta | None = None

    @classmethod
    def of(cls, failure: Failure, at: datetime, rule: str, delay: timedelta | None = None) -> CarriedAttempt:
        """Describe an attempt by its failure, its start, and what was decided."""
        text = failure.message[:TEXT].encode("utf-8", "replace").decode()
        return cls(at, failure.error_type, text, failure.stage, failure.reason, rule, delay)

    def to_list(self) -> list[object]:
        """Return the fields as JSON-able data."""
        at, delay = _seconds(self.at), _maybe(self.delay)
        return [at, self.error_type, self.error, self.stage.value, self.reason, self.rule, delay]

    @classmethod
    def from_list(cls, data: object) -> CarriedAttempt:
        """Build an attempt from the result of `to_list`.

        Raises:
            PolicyValueError: the data has another form.
        """
        try:
            at, kind, error, stage, reason, rule, delay = cast("Iterable[Any]", data)
            return cls(_instant(at), str(kind), str(error), Stage(stage), str(reason), str(rule), _span(delay))
        except (TypeError, ValueError, OverflowError) as problem:
            raise PolicyValueError(f"{data!r} is no attempt: {problem}") from problem


class Carried(NamedTuple):
    """The past of a call, as its message carries it."""

    #: The history with which the next attempt is decided; `Policy.advance` has returned it.
    history: History
    #: The earliest start of the next attempt, aware; None if it may start at once.
    due: datetime | None = None
    #: Processes that were lost in a row while they executed the call.
    lost: int = 0
    #: The last attempts, oldest first.
    attempts: tuple[CarriedAttempt, ...] = ()

    def followed_by(self, attempt: CarriedAttempt) -> Carried:
        """Return the same with one more attempt in the list."""
        return self._replace(attempts=(*self.attempts, attempt)[-ATTEMPTS:])

    def to_dict(self) -> dict[str, object]:
        """Return this as a JSON-able object of at most `SIZE` bytes; the oldest attempts are left out first."""
        charged, started_at, delay, by_rule = self.history
        attempts = [each.to_list() for each in self.attempts]
        data: dict[str, object] = {"v": VERSION, "n": charged - 1, "t": _seconds(started_at), "d": _maybe(delay)}
        data |= {"r": list(by_rule), "due": None if self.due is None else _seconds(self.due), "lost": self.lost}
        data["a"] = attempts
        while attempts and len(json.dumps(data)) > SIZE:
            del attempts[0]
        return data

    @classmethod
    def from_dict(cls, data: object) -> Carried:
        """Build the past of a call from the result of `to_dict`.

        Raises:
            PolicyValueError: another version of redrive has written the object, or it is none.
        """
        version = data.get("v") if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or version != VERSION or isinstance(version, bool):
            raise PolicyValueError(
                f"the history in the header of the message has the form {version!r}, and this version of redrive reads "
                f"only the form {VERSION}"
            )
        try:
            by_rule = tuple([whole("r", each) for each in data["r"]])
            history = History(whole("n", data["n"]) + 1, _instant(data["t"]), _span(data["d"]), by_rule)
            due = None if data["due"] is None else _instant(data["due"])
            attempts = tuple([CarriedAttempt.from_list(each) for each in data["a"]])
            return cls(history, due, whole("lost", data["lost"]), attempts)
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise PolicyValueError(f"the history in the header of the message cannot be read: {problem!r}") from problem


def _seconds(at: datetime) -> float:
    return (at - _EPOCH).total_seconds()


def _instant(seconds: float) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def _maybe(delay: timedelta | None) -> float | None:
    return None if delay is None else delay.total_seconds()


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
