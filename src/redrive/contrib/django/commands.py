"""Management commands that retry.

::

    class Command(RetryingCommand):
        retry = "5 1s 1m"

        def handle(self, *args, **options): ...

What is retried is `handle`, with the same options. Before each further attempt, broken database connections are closed.
What the command says by ``CommandError`` is said to its user, and not retried.

=========  ============================================================================
exit code  means
=========  ============================================================================
0          done, in whichever attempt
1          ``CommandError``, or an error that is not retried
75         gave up after the last attempt (``EX_TEMPFAIL``: a later run may well succeed)
=========  ============================================================================

Called by ``call_command``, the last error is raised as it is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import close_old_connections

from redrive import observe
from redrive.observe import CallRetryScheduled, Event
from redrive.policy import Failure, Policy
from redrive.policy.classify import reading
from redrive.visible import visible

__all__ = ["RetryingCommand"]

GAVE_UP = getattr(os, "EX_TEMPFAIL", 75)
"""The exit code of sysexits.h for what may succeed later."""


class RetryingCommand(BaseCommand):  # type: ignore[misc] # Django has no type information
    """A management command whose `handle` is retried.

    Attributes:
        retry: a directive, or a `Policy`, which may name in its ``on`` what is retried.
        retry_on: what is retried where the policy does not say it: exception types.
    """

    retry: ClassVar[Policy | str] = "3 1s 1m"
    retry_on: ClassVar[type[BaseException] | Iterable[type[BaseException]]] = Exception

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:  # noqa: ANN401 - Django's
        """Add ``--no-retry`` to what the command takes.

        Args:
            prog_name: as Django says.
            subcommand: likewise.
            **kwargs: likewise.

        Returns:
            The parser.
        """
        parser: CommandParser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.add_argument("--no-retry", action="store_true", help="Make one attempt only.")
        return parser

    def execute(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - Django's
        """Run `handle`, and again while the policy says so; the checks before it run once.

        Args:
            *args: as Django says.
            **options: likewise; ``no_retry`` is taken out.

        Returns:
            What `handle` returned.

        Raises:
            CommandError: on the command line, where the last attempt has failed.
        """
        attempt = cast("Any", type(self)).handle.__get__(self)
        self.handle = attempt if options.pop("no_retry", False) else self._retried(attempt)
        try:
            return super().execute(*args, **options)
        except CommandError:
            raise
        except Exception as error:
            tried = getattr(error, "__retry__", None)
            if tried is None or tried.attempts < 2 or not getattr(self, "_called_from_command_line", False):  # noqa: PLR2004 - a retry is a second attempt
                raise
            message = f"gave up after {tried.attempts} attempts: {type(error).__name__}: {error}"
            raise CommandError(visible(message), returncode=GAVE_UP) from error

    def _retried(self, attempt: Callable[..., Any]) -> Callable[..., Any]:
        policy = _policy(self.retry, self.retry_on)

        @functools.wraps(attempt)
        def handle(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - the command's
            def told(event: Event) -> None:
                if isinstance(event, CallRetryScheduled) and event.name.endswith(attempt.__qualname__):
                    self.stderr.write(visible(str(event)))
                    close_old_connections()

            with observe.add(told):
                return policy.call(attempt, *args, **options)

        return handle


def _policy(retry: Policy | str, retry_on: Any) -> Policy:  # noqa: ANN401 - see `RetryingCommand.retry_on`
    """The policy of a command: it may take long, would be run again by hand, and its CommandError is final."""
    policy = Policy.parse(retry) if isinstance(retry, str) else retry
    changes: dict[str, Any] = {} if policy.deadline_given else {"deadline": None}
    if policy.idempotent is None:
        changes["idempotent"] = True
    if not callable(policy.on):
        changes["on"] = reading(_failure, policy.on or retry_on)
    return policy.with_(**changes)


def _failure(error: BaseException) -> Failure | None:
    return None if isinstance(error, CommandError) else Failure.of(error)
