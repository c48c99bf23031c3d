"""Management commands that retry.

::

    class Command(RetryingCommand):
        retry = "5 1s 1m"

        def handle(self, *args, **options): ...

`handle` is retried with the same options. Before each further attempt, broken database connections are closed. A
``CommandError`` is a message to the user, and not retried.

=========  ============================================================================
exit code  meaning
=========  ============================================================================
0          success, in any attempt
1          ``CommandError``, or an error that is not retried
75         gave up after the last attempt (``EX_TEMPFAIL``: a later run may succeed)
=========  ============================================================================

``call_command`` raises the last error unchanged.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import close_old_connections

from redrive import observe
from redrive.errors.foreign import attribute, is_a, summary
from redrive.observe import CallRetryScheduled, Event
from redrive.policy import Failure, Policy
from redrive.policy.classify import reading
from redrive.visible import visible

GAVE_UP = getattr(os, "EX_TEMPFAIL", 75)
"""The exit code of sysexits.h for temporary failures."""


class RetryingCommand(BaseCommand):  # type: ignore[misc] # Django has no type information
    """A management command with retries of its `handle`.

    Attributes:
        retry: a directive, or a `Policy`, which may name the failures to retry in its ``on``.
        retry_on: the exception types to retry if the policy has no ``on``.
    """

    retry: ClassVar[Policy | str] = "3 1s 1m"
    retry_on: ClassVar[type[BaseException] | Iterable[type[BaseException]]] = Exception

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: object) -> CommandParser:
        """Add ``--no-retry`` to the options of the command."""
        parser: CommandParser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.add_argument("--no-retry", action="store_true", help="Make one attempt only.")
        return parser

    def execute(self, *args: object, **options: object) -> Any:
        """Run `handle` under the policy, after the checks, which run once.

        Raises:
            CommandError: the last attempt has failed, on the command line.
        """
        attempt = cast("Any", type(self)).handle.__get__(self)
        self.handle = attempt if options.pop("no_retry", False) else self._retried(attempt)
        try:
            return super().execute(*args, **options)
        except CommandError:
            raise
        except Exception as error:
            tried = attribute(error, "__retry__")
            if tried is None or tried.attempts < 2 or not getattr(self, "_called_from_command_line", False):  # noqa: PLR2004 - without a retry
                raise
            message = f"gave up after {tried.attempts} attempts: {summary(error)}"
            raise CommandError(visible(message), returncode=GAVE_UP) from error

    def _retried(self, attempt: Callable[..., Any]) -> Callable[..., Any]:
        policy = _policy(self.retry, self.retry_on)

        @functools.wraps(attempt)
        def handle(*args: object, **options: object) -> Any:
            def report(event: Event) -> None:
                if isinstance(event, CallRetryScheduled) and event.name.endswith(attempt.__qualname__):
                    self.stderr.write(visible(str(event)))
                    close_old_connections()

            with observe.add(report):
                return policy.call(attempt, *args, **options)

        return handle


def _policy(retry: Policy | str, retry_on: Any) -> Policy:
    """Return the policy of a command, with defaults for what it leaves open."""
    # A command may take long, and a user would run it again by hand, so it has no deadline and is idempotent.
    policy = Policy.parse(retry) if isinstance(retry, str) else retry
    changes: dict[str, Any] = {} if policy.deadline_given else {"deadline": None}
    if policy.idempotent is None:
        changes["idempotent"] = True
    if not callable(policy.on):
        changes["on"] = reading(_failure, policy.on or retry_on)
    return policy.with_(**changes)


def _failure(error: BaseException) -> Failure | None:
    return None if is_a(error, CommandError) else Failure.of(error)
