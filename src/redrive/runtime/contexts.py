"""What a handler gets, and its way back: the arguments of an attempt, its delivery, and its context.

::

    Contexts.arguments -> delivery_of -> Contexts.lend ---- context ----> handler
                                             |    ^                          |  ctx.progress, ctx.transaction ...
         stop requests, reports due <--------+    `--- AttemptHandle <-------'
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from redrive.app.app import App
from redrive.app.attempts.context import Context
from redrive.app.attempts.effects import Effects
from redrive.app.attempts.handle import AttemptHandle, Stop
from redrive.app.attempts.origins import Delivery, DeliveryHandle, TransitionHandle
from redrive.app.tasks.catch import CatchRequest, request_hint
from redrive.app.tasks.failures import failed
from redrive.app.tasks.task import Task
from redrive.app.topics.subscription import Subscription, envelopes
from redrive.app.types import type_name
from redrive.engine.keys import idempotency_key
from redrive.engine.lease import ATTEMPT_LIMIT
from redrive.engine.outcome import Failed, Outcome, Succeeded
from redrive.engine.records import Claim
from redrive.engine.topics import OUT_OF_ORDER
from redrive.errors import StoreError
from redrive.observe.logs import Block
from redrive.runtime import log
from redrive.stores.operations import attempts as handler_reports
from redrive.stores.operations import jobs, workers
from redrive.stores.operations.attempts import ProgressReport


class UnknownTask(Exception):
    """The app has no task with the name of the dead job."""


class Contexts:
    """The contexts that handlers of one app have now; ``resources`` is what the start hooks have returned.

    ``era`` returns that of the store in which the present claims were made.
    """

    def __init__(self, app: App, resources: Mapping[str, Any], era: Callable[[], int | None] = lambda: None) -> None:
        self._app = app
        self._era = era
        self._resources = resources
        self._links: dict[int, AttemptHandle] = {}

    def stop(self, why: Stop, lease_ids: Iterable[int] | None = None) -> None:
        """Set ``ctx.should_stop`` for the handlers of these leases; None means all. Safe to call from any thread."""
        for lease_id in list(self._links) if lease_ids is None else lease_ids:
            link = self._links.get(lease_id)
            if link is not None:
                link.stop(why)

    def ends_by_itself(self, lease_id: int) -> bool:
        """Return True if the handler has ended this attempt in its own transaction, or may be doing so now."""
        link = self._links.get(lease_id)
        return link is not None and (link.ended or link.lent)

    def unwritten(self) -> list[ProgressReport]:
        """Take the reports of handlers that are not written yet. Safe to call from any thread."""
        reports = (link.due_report() for link in list(self._links.values()))
        return [report for report in reports if report is not None]

    async def arguments(self, task: Task[Any, Any, Any], claim: Claim, limit: timedelta) -> dict[str, Any]:
        """Return the arguments of the handler without its context."""
        if claim.parent_id is None:
            return task.signature.read(claim.payload or b"{}")
        await self._prolong(claim, limit)
        return {task.signature.payload[0]: await self._catch_request(task, claim.parent_id)}

    async def _prolong(self, claim: Claim, limit: timedelta) -> None:
        """Write the time limit of a catch attempt that is longer than the default."""
        # The row was written when the dead job ended, and only the code of the catch task has its limit.
        if limit > ATTEMPT_LIMIT:
            await self._app.store.arun(workers.prolong(claim.id, claim.lease_id, limit))

    async def _catch_request(self, catch: Task[Any, Any, Any], parent_id: int) -> CatchRequest[Any]:
        wanted = request_hint(catch.signature)
        dead = await self._app.store.arun(jobs.material(parent_id))
        failed = self._app.find(dead.job.task)
        if failed is None:
            raise UnknownTask(dead.job.task)
        request, kind = failed.signature.read_request(dead.payload or b"{}", wanted)
        return CatchRequest(
            task=dead.job.task,
            request=request,
            request_type=type_name(kind),
            error=dead.job.error or "unknown error",
            attempts=dead.attempts,
            job_id=dead.job.id,
        )

    async def lend(
        self,
        task: Task[Any, Any, Any],
        claim: Claim,
        arguments: dict[str, Any],
        limit: timedelta,
        call: Callable[[], Awaitable[Outcome]],
        *,
        effects: Effects,
        transition: TransitionHandle | None = None,
        delivery: Delivery | None = None,
    ) -> Outcome:
        """Call a handler that takes a context, which is added to its arguments; return how it ended."""
        uid = await self._app.auid()
        # The same key in the feeder and in the job of the failed event.
        key = f"{uid}-{claim.origin}" if delivery else idempotency_key(uid, claim.id, claim.salt)
        if delivery is not None and delivery.feed is None and claim.attempt > 1:
            # A redriven job has had an attempt. Others do not read their tags.
            tags = await self._app.store.arun(jobs.tags([claim.id]))
            delivery.out_of_order = OUT_OF_ORDER in tags.get(claim.id, ())
        link = self._link(task, claim, arguments, limit, key, effects=effects, transition=transition, delivery=delivery)
        self._links[claim.lease_id] = link
        try:
            outcome = await call()
        except asyncio.CancelledError:
            if not link.ended:
                raise
            outcome = Succeeded(link.result)
        else:
            await self._write_last_report(link)
        finally:
            # The thread of a `def` handler may go on.
            link.stop(Stop.LOST)
            del self._links[claim.lease_id]
        if delivery is not None and delivery.feed is None and delivery.failed and isinstance(outcome, Succeeded):
            return failed(delivery.failed[0])
        return _transacted(link, outcome) if link.ended else outcome

    def _link(
        self,
        task: Task[Any, Any, Any],
        claim: Claim,
        arguments: dict[str, Any],
        limit: timedelta,
        key: str,
        *,
        effects: Effects,
        transition: TransitionHandle | None,
        delivery: Delivery | None,
    ) -> AttemptHandle:
        """Add the context to the arguments and return the handle of the attempt."""
        assert task.signature.context is not None
        soft_for = None if task.traits.soft_timeout is None else task.traits.soft_timeout.total_seconds()
        parts = (claim, self._app.store, self._app.now, task.returns.check, soft_for, effects, self._era())
        is_fed = delivery is not None and delivery.feed is not None
        link = DeliveryHandle(*parts, delivery) if is_fed and delivery else AttemptHandle(*parts)
        arguments[task.signature.context] = Context(
            job_id=claim.id,
            task=claim.task,
            attempt=claim.attempt,
            failures=claim.failures,
            attempt_uid=link.uid,
            delivery=delivery,
            idempotency_key=key,
            started_at=claim.started_at,
            deadline_at=claim.claimed_at + limit,
            origin=claim.origin,
            link=link,
            resources=self._resources,
            transition=transition,
        )
        return link

    async def _write_last_report(self, link: AttemptHandle) -> None:
        """Write what the handler has reported in its last second, before the end of the attempt forbids it."""
        report = link.last_report()
        if report is not None:
            try:
                await self._app.store.arun(handler_reports.report([report], now=self._app.now()))
            except StoreError as error:
                # The handler has done its work: its end is written as soon as the database answers.
                log.warning("job %d: its last progress report could not be written: %s", link.job_id, error)


# A handler may end its attempt by itself, in the transaction of its context. Then the end is written,
# and a later error or result of the handler is only logged.
def _transacted(link: AttemptHandle, outcome: Outcome) -> Outcome:
    """Return the success that the transaction has written, and log a different end of the handler."""
    match outcome:
        case Succeeded(None) | Succeeded(link.result):
            pass
        case Succeeded():
            log.error(
                "job %d: the result that its handler returned after ctx.transaction() is not kept, because the "
                "transaction has completed the job: set the result inside the block, by ctx.set_result()",
                link.claim.id,
            )
        case Failed(failure, trace):
            log.error(
                "job %d: its handler failed after its transaction: %s%s", link.claim.id, failure.message, Block(trace)
            )
        case _:
            log.error("job %d: its transaction has completed it; it cannot become %s", link.claim.id, outcome)
    return Succeeded(link.result, written=link.settlement)


def delivery_of(
    claim: Claim, task: Task[Any, Any, Any], arguments: dict[str, Any], delivery: Delivery | None
) -> Delivery | None:
    """Return the delivery of an attempt, with the events as its handler gets them; None for another task."""
    if not isinstance(task, Subscription):
        return None
    found = delivery or Delivery(envelopes(claim.payload or b"[]"), redelivered=claim.attempt > 1)
    value = arguments[task.signature.payload[0]]
    found.values = value if task.batch is not None else (value,)
    return found
