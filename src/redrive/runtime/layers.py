"""The attempt of a job, or the try of a step, as a layer that retries.

A call in process that is made in it, such as a request through a retrying transport, leaves a failure to the job if the
policy of the job would retry it: the wait is then a row, and the attempts of both do not multiply. The layer stands in
the context of the handler, which its tasks and ``asyncio.to_thread`` copy.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Token
from datetime import datetime
from typing import Any

from redrive.policy import Defer, History, Policy, Retry
from redrive.policy.classify import is_coroutine_function
from redrive.retrying.context import JOB, Job

# The random sample of the longest delay.
_LONGEST = 1 - 2.0**-53


class JobLayer:
    """What retries the code that runs now; `redrive.retrying.context.Job`.

    Args:
        name: the task or the step.
        policy: decides on the failures of its attempts.
        at: an instant in the attempt.
        outer: the run of a step.
    """

    __slots__ = ("_at", "_outer", "_policy", "name")

    def __init__(self, name: str, policy: Policy, at: datetime, outer: Job | None = None) -> None:
        self.name = name
        self._policy = policy
        self._at = at
        self._outer = outer

    def repeats(self, error: Exception | None, result: object) -> bool:
        """Return True if the job retries this error as its first failure, or its run does."""
        # A result that an inner call rejects is no failure of the job unless the handler returns it.
        if error is None:
            return False
        return self._retries(error) or (self._outer is not None and self._outer.repeats(error, result))

    def _retries(self, error: Exception) -> bool:
        policy = self._policy.durable()
        if callable(policy.on) and is_coroutine_function(policy.on):
            return False
        try:
            decision = policy.decide(History(1, self._at), policy.classify(error), self._at, _LONGEST)
        except Exception:  # noqa: BLE001 - a predicate of the user; the end of the attempt reports it
            return False
        return isinstance(decision, Retry | Defer)


def begin(name: str, policy: Policy | None, at: datetime) -> Token[Job | None] | None:
    """Make a policy the layer of what follows in this context, inside the layer that is there.

    Return what `end` takes. None, and a policy that never makes a second attempt, are no layer.
    """
    if policy is None or (policy.attempts == 1 and not policy.rules):
        return None
    return JOB.set(JobLayer(name, policy, at, JOB.get()))


def end(token: Token[Job | None] | None) -> None:
    """Restore the layer that was there before `begin`."""
    if token is not None:
        JOB.reset(token)


@contextmanager
def layer(name: str, policy: Policy | None, at: datetime) -> Iterator[None]:
    """Make a policy the layer of what runs in a ``with`` block; see `begin`."""
    token = begin(name, policy, at)
    try:
        yield
    finally:
        end(token)


_CARRIES = "_redrive_carries_context"


def carry_context() -> None:
    """Have ``run_in_executor`` of the running event loop call functions in threads with a copy of the context.

    Without it a request in such a thread would not find the job that has made it, and be retried by both. Loops that
    take no attributes remain as they are.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    if hasattr(loop, _CARRIES):
        return
    plain = loop.run_in_executor

    def run_in_executor(executor: Executor | None, call: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        # The context cannot be sent to another process.
        if JOB.get() is not None and (executor is None or isinstance(executor, ThreadPoolExecutor)):
            return plain(executor, contextvars.copy_context().run, call, *args)
        return plain(executor, call, *args)

    with suppress(AttributeError):
        setattr(loop, _CARRIES, True)
        loop.run_in_executor = run_in_executor  # type: ignore[method-assign, assignment]
