"""What the shop does in the background."""

from __future__ import annotations

import sys
from typing import Any

from django.db import connection, transaction

from redrive import Cancel, CatchRequest, Snooze
from redrive.contrib.django import JobContext, cron, retries
from redrive.contrib.django.compat import task_backends
from tests.contrib.django.sample.models import Charge

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task

seen: list[Any] = []
"""What tasks have met, in order; the tests empty it."""

troubles: list[Exception] = []
"""What the next executions raise, in order."""

__all__ = ["task_backends"]


@task
def add(one: int, two: int) -> int:
    """Add."""
    return one + two


@task
async def aadd(one: int, two: int) -> int:
    """Add, in a coroutine."""
    return one + two


@task(takes_context=True, priority=7)
def look(context: JobContext) -> list[Any]:
    """Return the contents of the context."""
    return [context.attempt, context.task_result.id, context.job.attempt, str(context.task_result.status)]


@task(takes_context=True)
async def alook(context: JobContext) -> list[Any]:
    """Return the contents of the context, in a coroutine."""
    return [context.attempt, context.task_result.id]


@task
@retries("3 1ms")
def stumble(word: str) -> str:
    """Fail as long as there are troubles."""
    if troubles:
        raise troubles.pop(0)
    return word


@task
@retries("2 1ms")
async def astumble(word: str) -> str:
    """Fail as long as there are troubles, in a coroutine."""
    if troubles:
        raise troubles.pop(0)
    return word


@task
def once(word: str) -> None:
    """Fail, and have no policy of its own."""
    raise ValueError(word)


@task
def snooze() -> str:
    """Come later, once."""
    if troubles:
        troubles.pop()
        raise Snooze("1ms")
    return "awake"


@task
@retries("1 1ms catch recover")
def doomed(word: str) -> None:
    """Fail for good."""
    raise LookupError(word)


@task
def recover(request: CatchRequest[Any]) -> None:
    """Take what was doomed."""
    seen.append((request.task.rpartition(".")[2], request.request, len(request.attempts)))


@task
@retries("1 1ms catch arecover")
async def adoomed(word: str) -> None:
    """Fail for good, in a coroutine."""
    raise LookupError(word)


@task
async def arecover(request: CatchRequest) -> None:
    """Take what was doomed, in a coroutine."""
    seen.append((request.task.rpartition(".")[2], request.request, len(request.attempts)))


@task
def unreadable(word: "NoSuchClass") -> None:  # noqa: F821, UP037 - it cannot be resolved, which is the subject
    """Have annotations that mean nothing."""
    seen.append(word)


@task(takes_context=True)
@retries("3 1ms")
def charge(context: JobContext, cents: int) -> str:
    """Take money, exactly once."""
    with context.transaction():
        Charge.objects.create(cents=cents, note="once")
        if troubles:
            raise troubles.pop(0)
        context.job.set_result("charged")
    return "charged"


@task(takes_context=True)
def nested(context: JobContext) -> None:
    """End the job in a transaction that is not the outermost."""
    with transaction.atomic(), context.transaction():
        """Nothing gets here."""


@task(takes_context=True)
async def acharge(context: JobContext) -> None:
    """Try a transaction in a coroutine."""
    async with context.transaction():
        """Nothing gets here."""


@task
def use_the_database() -> int:
    """Leave a connection behind."""
    found = Charge.objects.count()
    seen.append(connection.connection)
    return found


@task
def echo(value: Any, named: Any = None) -> list[Any]:
    """Return the arguments."""
    return [value, named]


@task
def unstorable() -> object:
    """Return a value that cannot be stored."""
    return object()


@task
def leave() -> None:
    """Try to end the process."""
    sys.exit(3)


@task
@retries("2 1ms")
async def aleave() -> None:
    """Try to end the process, in a coroutine."""
    sys.exit(3)


@task
def give_up() -> None:
    """Cancel the own job."""
    raise Cancel("not needed")


@cron("0 3 * * *", tz="Europe/Kyiv", retry="2 1s")
def nightly() -> None:
    """Run at night."""
    seen.append(Charge.objects.count())


@cron("0 4 * * *")
async def anightly() -> None:
    """Run at night, in a coroutine."""
    seen.append("anightly")


def plain() -> None:
    """Be no task."""
