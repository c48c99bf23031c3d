"""The low-level gate: single steps with a lease, a policy and an injected time, for code that is no workflow."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from redrive.app.arguments import shown
from redrive.app.payload import write_result
from redrive.app.protocol import AppProtocol
from redrive.app.tasks.enqueue import durable_policy
from redrive.app.tasks.failures import ERROR_TEXT, clean, failed
from redrive.app.tasks.job import Job
from redrive.engine.runs import StepError, StepKind, StepRecord
from redrive.engine.steps import FailedTry
from redrive.errors import ConfigurationError
from redrive.policy import Failure, Policy
from redrive.policy.duration import Duration
from redrive.policy.fields import span
from redrive.retrying import rng
from redrive.stores.operations.runs import gate
from redrive.stores.operations.runs.gate import Acquired
from redrive.stores.query import Operation

DEFAULT_LEASE = "5m"


class Done(msgspec.Struct, frozen=True):
    """The answer of the gate for a step that has succeeded: it is not executed again.

    Attributes:
        result: its result, as decoded from JSON.
    """

    result: Any


class Execute(msgspec.Struct, frozen=True):
    """The answer of the gate for a step that the caller executes.

    Attributes:
        guard: reports the end of the execution.
    """

    guard: StepGuard


class StepGuard:
    """The right to execute a step, until its lease ends.

    Each report names the lease. If it has ended and another caller has acquired the step, the report changes nothing
    and raises `LeaseLost`. A report without an answer can be repeated.
    """

    def __init__(self, app: AppProtocol, step: StepRecord, policy: Policy) -> None:
        self._app = app
        self._step = step
        self._policy = policy

    def __repr__(self) -> str:
        return f"<the right to execute step {self.name!r} of job {self.job_id}>"

    @property
    def job_id(self) -> int:
        """The job to which the step belongs."""
        return self._step.run_id

    @property
    def name(self) -> str:
        """The name of the step."""
        return self._step.name

    @property
    def retry_count(self) -> int:
        """The number of failed tries before this one."""
        return self._step.tries

    @property
    def lease_until(self) -> datetime:
        """When another caller may acquire the step."""
        assert self._step.due_at is not None  # a step that is executed has a lease
        return self._step.due_at

    def succeed(self, result: object = None, *, now: datetime | None = None) -> None:
        """Record the result of the step, which every later `StepGate.acquire` returns.

        Args:
            result: anything that can be written as JSON, up to 1 MiB.
            now: the present time, for tests; by default that of the database.

        Raises:
            LeaseLost: another caller has the step; nothing was written.
            PayloadError: the result cannot be written.
            ResultTooLarge: it is too large; the step is still the caller's.
            StoreError: the database refused, or cannot be reached.
        """
        self._app.store.run(self._success(result, now))

    async def asucceed(self, result: object = None, *, now: datetime | None = None) -> None:
        """Record the result of the step; see `succeed`."""
        await self._app.store.arun(self._success(result, now))

    def fail(self, error: BaseException | str, *, now: datetime | None = None) -> datetime | None:
        """Record a failed try, about which the policy decides.

        Args:
            error: the exception; `RetryAfter` sets the delay, and `GiveUp` fails the step for good. A text is a
                permanent error.
            now: the present time, for tests; by default that of the database. The delay counts from here, or from
                the acquire if that was later.

        Returns:
            When the step is tried again; None if it has failed for good.

        Raises:
            LeaseLost: another caller has the step; nothing was written.
            StoreError: the database refused, or cannot be reached.
        """
        return self._app.store.run(self._failure(error, now)).due_at

    async def afail(self, error: BaseException | str, *, now: datetime | None = None) -> datetime | None:
        """Record a failed try; see `fail`."""
        return (await self._app.store.arun(self._failure(error, now))).due_at

    def extend(self, lease: Duration = DEFAULT_LEASE, *, now: datetime | None = None) -> None:
        """Extend the lease of this execution.

        Args:
            lease: how long the caller has the step from now on.
            now: the present time, for tests; by default that of the database.

        Raises:
            LeaseLost: another caller has the step; nothing was written.
            StoreError: the database refused, or cannot be reached.
        """
        self._step = self._app.store.run(self._extension(lease, now))

    async def aextend(self, lease: Duration = DEFAULT_LEASE, *, now: datetime | None = None) -> None:
        """Extend the lease of this execution; see `extend`."""
        self._step = await self._app.store.arun(self._extension(lease, now))

    def _success(self, result: object, now: datetime | None) -> Operation[StepRecord]:
        return gate.succeed(self._step, write_result(result), limit=self._app.max_payload, now=_instant(now, self._app))

    def _failure(self, error: BaseException | str, now: datetime | None) -> Operation[StepRecord]:
        step, failure = self._step, _failure_of(error)
        end = FailedTry(
            step.path,
            StepKind.STEP,
            step.name,
            step.took,
            step.tries + 1,
            failure,
            StepError(failure.types, failure.message, failure.reason),
            self._policy,
            rng.roll(),
            history=step.history,
        )
        return gate.fail(step, end, now=_instant(now, self._app))

    def _extension(self, lease: Duration, now: datetime | None) -> Operation[StepRecord]:
        return gate.extend(self._step, span(lease, "lease"), now=_instant(now, self._app))


class StepGate:
    """The gate of single steps; it is `App.steps`.

    Steps belong to a job, with or without a workflow, and are deleted with it. A step is executed by one
    caller at a time: of any number of callers at the same instant one receives `Execute`, on every database.
    """

    def __init__(self, app: AppProtocol) -> None:
        self._app = app

    def acquire(
        self,
        job: Job[Any] | int,
        name: str,
        *,
        policy: Policy | str | None = None,
        lease: Duration = DEFAULT_LEASE,
        now: datetime | None = None,
    ) -> Execute | Done:
        """Return the right to execute a step now, or its result if it has succeeded.

        Args:
            job: the job to which the step belongs, or its id; for example ``ctx.job_id``.
            name: identifies the step in its job. It is not a number, as the paths of steps in workflows are.
            policy: decides about failed tries; by default the first failure is final.
            lease: how long the caller has the step. Then another caller may acquire it, and reports of this one are
                refused.
            now: the present time, for tests; by default that of the database.

        Returns:
            `Execute`, with the guard that reports the end, or `Done`, with the result.

        Raises:
            StepNotReady: the step has failed and its next try is not due; the error has the time.
            StepBusy: another caller executes it.
            StepExhausted: it has failed for good.
            JobNotFound: there is no such job.
            IllegalMove: the job has ended, and the step has no result.
            ConfigurationError: the name, the lease or the time is not valid.
            PolicyError: the policy cannot be read.
            StoreError: the database refused, or cannot be reached.
        """
        wanted = self._policy(name, policy)
        return self._answer(self._app.store.run(self._asked(job, name, lease, now)), wanted)

    async def aacquire(
        self,
        job: Job[Any] | int,
        name: str,
        *,
        policy: Policy | str | None = None,
        lease: Duration = DEFAULT_LEASE,
        now: datetime | None = None,
    ) -> Execute | Done:
        """Return the right to execute a step now, or its result; see `acquire`."""
        wanted = self._policy(name, policy)
        return self._answer(await self._app.store.arun(self._asked(job, name, lease, now)), wanted)

    def _policy(self, name: str, policy: Policy | str | None) -> Policy:
        return durable_policy(policy, f"step {name!r}")

    def _asked(self, job: Job[Any] | int, name: str, lease: Duration, now: datetime | None) -> Operation[Acquired]:
        number = job.identity(self._app)[0] if isinstance(job, Job) else job
        if isinstance(number, bool) or not isinstance(number, int):
            raise ConfigurationError(f"app.steps: a step belongs to a job or its id, got {shown(job)}")
        lease_for = span(lease, "lease")
        if not lease_for:
            raise ConfigurationError("app.steps: lease is a time above zero")
        return gate.acquire(number, name, lease_for=lease_for, now=_instant(now, self._app))

    def _answer(self, given: Acquired, policy: Policy) -> Execute | Done:
        if given.execute:
            return Execute(StepGuard(self._app, given.step, policy))
        raw = given.step.result
        return Done(None if raw is None else msgspec.json.decode(raw))


def _instant(now: datetime | None, app: AppProtocol) -> datetime | None:
    if now is None:
        return app.now()
    if not isinstance(now, datetime) or now.utcoffset() is None:
        raise ConfigurationError(f"app.steps: now is a datetime with a time zone, got {shown(now)}")
    return now


def _failure_of(error: BaseException | str) -> Failure:
    if isinstance(error, str):
        text = clean(error, ERROR_TEXT)
        return Failure((), text, "GAVE_UP", permanent=text)
    if not isinstance(error, BaseException):
        raise ConfigurationError(f"app.steps: fail() takes an exception or a text, got {shown(error)}")
    return failed(error).failure
