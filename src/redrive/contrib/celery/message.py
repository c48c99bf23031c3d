"""The message of a task: what its headers carry, when it expires, and how it is sent again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from celery import Task
from celery.exceptions import Reject, Retry
from celery.utils.time import maybe_iso8601, maybe_make_aware
from kombu.exceptions import OperationalError

from redrive.clock import Clock
from redrive.policy import GiveUp, History
from redrive.policy.carried import Carried
from redrive.retrying.context import present_clock

HEADER = "redrive"
"""The header with the past of the call."""

CATCH = "redrive_catch"
"""The header of the message of a catch task: the seconds between its attempts."""


class Message:
    """The message of the attempt that runs, or that has ended with its process.

    Args:
        task: the task, bound to its app.
        request: Celery's context of the attempt.

    Attributes:
        args: the positional arguments.
        kwargs: the arguments by name.
        past: what the message carries; that of a new call if it carries nothing, or nothing that can be read.
        every: for the message of a catch task, the interval between its attempts; otherwise None.
    """

    def __init__(self, task: Any, request: Any) -> None:
        self.task, self._request = task, request
        self.clock: Clock = present_clock()
        #: The instant at which this object was made.
        self.at: datetime = self.clock.now()
        self.args: tuple[Any, ...] = tuple(request.args or ())
        self.kwargs: Mapping[str, Any] = request.kwargs or {}
        self._headers: Mapping[str, Any] = request.headers or {}
        self.past: Carried = Carried(History(1, self.at))
        every = self._headers.get(CATCH)
        self.every: timedelta | None = None if every is None else timedelta(seconds=every)

    def read(self) -> None:
        """Read what the message carries into ``past``.

        Raises:
            PolicyValueError: another version of redrive has written it.
        """
        if self.is_repeated:
            self.past = Carried.from_dict(self._headers[HEADER])

    @property
    def id(self) -> str:
        """The id of the task: the same in all attempts."""
        return str(self._request.id)

    @property
    def is_catch(self) -> bool:
        """True for the message of a catch task."""
        return self.every is not None

    @property
    def is_repeated(self) -> bool:
        """True if the message carries the past of its call."""
        return HEADER in self._headers

    @property
    def is_eager(self) -> bool:
        """True if the call runs in the process of the caller, without a broker."""
        return bool(self._request.is_eager)

    @property
    def is_redelivered(self) -> bool:
        """True if the broker has delivered the message before, to a worker that has not acknowledged it."""
        return bool((self._request.delivery_info or {}).get("redelivered"))

    def expires_by(self, at: datetime) -> GiveUp | None:
        """Return the end of the call if its message has expired at an instant: Celery would drop it without a word."""
        expires = self._request.expires
        if expires is None:
            return None
        last = maybe_make_aware(maybe_iso8601(expires), UTC)
        return GiveUp(f"the message expires at {last:%Y-%m-%d %H:%M:%S}", "deadline") if at >= last else None

    def signature(self, past: Carried, delay: timedelta) -> Any:
        """Return the message of the next attempt, which comes after a hop if the wait is longer than that."""
        past = past._replace(due=self.clock.now() + delay)
        made = Task.signature_from_request(
            self.task,
            self._request,
            countdown=min(delay, self.task.hop).total_seconds(),
            retries=self._request.retries + 1,
        )
        # Stamps, and what other tools have put there, stay.
        made.options["headers"] = {**(made.options.get("headers") or {}), HEADER: past.to_dict()}
        return made

    def send_again(self, past: Carried, delay: timedelta, error: Exception | None) -> Retry:
        """Send the message of the next attempt; return the exception with which the present one ends."""
        made = self.signature(past, delay)
        if not self.is_eager:
            try:
                made.apply_async()
            except OperationalError as unreachable:
                self.hand_back(unreachable)
        return Retry(exc=error, when=delay.total_seconds(), is_eager=self.is_eager, sig=made)

    def hand_back(self, error: Exception) -> NoReturn:
        """Return the present message to its queue, because the next one cannot be sent: the attempt is made again."""
        raise Reject(error, requeue=True) from error
