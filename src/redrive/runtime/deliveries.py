"""The deliveries of a feeder: calls of the handler with the events of its window, and what they leave to be written.

::

    window.next() -> events -> start -> Executor.run -> Outcome -> ended
                                                                    |-- done:   the window counts it, effects
                                                                    |-- failed: a job in place of the event (divert)
                                                                    `-- failed, several events: each is delivered alone

The feeder writes `diverted`, `effects` and `passed` with its position.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.app.app import App
from redrive.app.attempts.origins import Delivery, FeedPlace
from redrive.app.events import emit_moved
from redrive.app.tasks.failures import failed, permanent
from redrive.app.topics.subscription import Subscription, envelopes, pack
from redrive.clock import Clock
from redrive.engine.frozen import freeze
from redrive.engine.origin import Effect, of_topic
from redrive.engine.outcome import Outcome, Succeeded, Suspended
from redrive.engine.records import Claim, NewJob
from redrive.engine.search import tags_of
from redrive.engine.topics import OUT_OF_ORDER, Order, SubscriptionRecord, TopicEvent, Window, key_line, line_of
from redrive.observe import TopicDelivered, emit
from redrive.observe.listeners import DEBUG, heard
from redrive.runtime import log
from redrive.runtime.executor import Executor
from redrive.runtime.tracing import kept
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.topics import feed
from redrive.stores.operations.topics.feed import Diverted

# Events that are done between two writes: as many may be delivered again after a crash.
FLUSH_EVENTS = 1000

# Leases of deliveries, which only this process uses: negative, so that they are not those of jobs.
_NUMBERS = itertools.count(1)


class Deliveries:
    """The deliveries of one feeder.

    Attributes:
        place: the lease of the feeder and its shard.
        record: the row of the subscription.
        window: decides which events may be delivered.
        tasks: the deliveries that run.
        leases: their leases.
        diverted: jobs to be written in place of events, with the claims of the deliveries that have failed.
        effects: effects of handlers to be written.
        passed: events of the shard with a row in ``redrive_done``, to be deleted when the shard has them as done.
        flushed: the number of events of the window that are written as done.
        redelivered_until: the last event that an earlier feeder may have delivered.
        suspect_until: the last event that may have killed its worker.
        number: the number of calls of the handler.
    """

    place: FeedPlace
    record: SubscriptionRecord

    def __init__(
        self,
        app: App,
        clock: Clock,
        claim: Claim,
        subscription: Subscription,
        executor: Executor,
        *,
        cut: set[int],
        sample: Callable[[], float],
        wake: asyncio.Event,
    ) -> None:
        self._app = app
        self._clock = clock
        self._claim = claim
        self._subscription = subscription
        self._executor = executor
        self._cut = cut
        self._sample = sample
        self._wake = wake
        self.window: Window = Window(Order.NONE)
        self.tasks: set[asyncio.Task[None]] = set()
        self.leases: dict[asyncio.Task[None], int] = {}
        self.diverted: list[tuple[Diverted, Claim | None]] = []
        self.effects: list[Effect] = []
        self.passed: set[int] = set()
        self._again: set[int] = set()
        self.redelivered_until = self.suspect_until = self.flushed = self.number = 0

    @property
    def full(self) -> bool:
        """True if as many events are done and not written as may be; none starts then."""
        unwritten = self.window.ended - self.flushed
        # Those that run may end during the write. Very many of them must not make each end a write.
        return unwritten >= FLUSH_EVENTS // 2 and unwritten + len(self.tasks) >= FLUSH_EVENTS

    @property
    def pending(self) -> bool:
        """True if something is to be written."""
        return bool(self.diverted or self.effects) or self.window.ended > self.flushed

    async def cancel(self) -> None:
        """Cancel the deliveries that run; nothing of them is recorded."""
        for task, lease_id in self.leases.items():
            self._cut.add(lease_id)
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    def start(self) -> None:
        """Start the deliveries that may start now."""
        while not self.full and (events := self.window.next()):
            if events[0].id <= self.suspect_until:
                # An event that may have killed its worker gets a job of its own, which has a limit of crashes.
                self.window.stopped(events, failed=events)
                self._divert([(event, None, None, None) for event in events])
                continue
            claim = self._executor.functions.present(self._delivery_claim(events))
            task = asyncio.get_running_loop().create_task(self._deliver(events, claim))
            self.tasks.add(task)
            self.leases[task] = claim.lease_id
            task.add_done_callback(functools.partial(self._finished, events))

    def _finished(self, events: Sequence[TopicEvent], task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._cut.discard(self.leases.pop(task))
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # A defect of the worker itself: the events become jobs.
            log.error("%s: the worker itself failed: %r", self.record.task, error)
            self.window.stopped(events, failed=events)
            self._divert([(event, failed(error), None, None) for event in events])

    async def _deliver(self, events: tuple[TopicEvent, ...], claim: Claim) -> None:
        again = events[0].id <= self.redelivered_until or any(event.id in self._again for event in events)
        delivery = Delivery(envelopes(claim.payload or b""), redelivered=again, feed=self.place)
        began = self._clock.monotonic()
        outcome = await self._executor.run(claim, delivery)
        self.number += 1
        self._ended(events, claim, outcome, delivery, kept())
        if not heard("redrive.topics", DEBUG):
            return
        emit(
            TopicDelivered(
                topic=self.record.topic,
                subscription=self.record.name,
                count=len(events),
                failed=len(events) if not isinstance(outcome, Succeeded) else len(delivery.failed),
                took=timedelta(seconds=self._clock.monotonic() - began),
                waited=max(claim.claimed_at - events[0].at, timedelta(0)),
            )
        )

    def _delivery_claim(self, events: tuple[TopicEvent, ...]) -> Claim:
        """Return a claim of events, as the executor takes it; it exists only in this process."""
        now = self._app.now() or self._clock.now()
        return Claim(
            id=self._claim.id,
            lease_id=-next(_NUMBERS),
            task=self._subscription.name,
            queue=self._subscription.name,
            worker_id=self._claim.worker_id,
            started_at=now,
            claimed_at=now,
            payload=pack(events),
            policy=self._subscription.policy,
            scheduled_at=events[0].at,
            origin=of_topic(self.record.topic, self.record.name, events[0].id),
        )

    def _ended(
        self, events: tuple[TopicEvent, ...], claim: Claim, outcome: Outcome, delivery: Delivery, trace: str | None
    ) -> None:
        """Record the end of a delivery."""
        if delivery.committed:
            self.passed.update(each.id for place, each in enumerate(events) if place not in delivery.failed)
        if isinstance(outcome, Suspended):
            outcome = permanent("BAD_RESULT", "a subscription cannot return Pending: no job waits for the answer")
        if isinstance(outcome, Succeeded):
            bad = {events[place]: error for place, error in delivery.failed.items()}
            self.effects.extend(outcome.effects)
            self.window.stopped(events, failed=tuple(bad))
            self.window.finish(event.id for event in events if event not in bad)
            self._divert([(event, failed(error), claim, trace) for event, error in bad.items()])
        elif len(events) > 1:
            # It is unknown which of the events has failed: each is delivered alone.
            self._again.update(event.id for event in events)
            self.window.retry(events)
        else:
            self.window.stopped(events, failed=events)
            self._divert([(events[0], outcome, claim, trace)])
        self.behind()

    def behind(self) -> None:
        """Make jobs of the events behind a failed one of their key."""
        found = self.window.behind()
        if found:
            self._divert([(event, None, None, None) for event in found])

    def _divert(self, given: Sequence[tuple[TopicEvent, Outcome | None, Claim | None, str | None]]) -> None:
        """Have events written as jobs with the next write of the position."""
        fields = self._subscription.defaults.search
        for event, outcome, claim, trace in given:
            line = line_of(self.record.ordering, event)
            # The event may be deleted before its job, which is then found by the key.
            key = None if event.key is None else key_line(event.key)
            new = NewJob(
                task=self._subscription.name,
                queue=self._subscription.name,
                priority=0,
                payload=pack((event,)),
                policy=freeze(self._subscription.policy),
                partition=line,
                origin=of_topic(self.record.topic, self.record.name, event.id),
                tags=() if key is None or key == line else (key,),
                search=_tags(event, fields),
            )
            self.diverted.append((Diverted(new, outcome, self._sample(), trace), claim))
        self.window.finish(event.id for event, *_ in given)
        self.behind()

    def report(self, diverted: Sequence[tuple[Diverted, Claim | None]], written: feed.Ends) -> None:
        """Emit the events of first attempts that failed, and call the hooks of the policy."""
        if not written:
            return
        settled = [settlement for _, settlement in written]
        emit_moved(settled)
        self._app.settled(settled)
        tried = {each.job.origin: (each, claim) for each, claim in diverted}
        endings, moved = [], []
        for job, settlement in written:
            each, claim = tried[job.origin]
            if claim is None:
                continue
            assert each.outcome is not None
            endings.append(Ending(claim, each.outcome, each.sample))
            moved.append(replace(settlement, lease_id=claim.lease_id))
        self._executor.functions.report(endings, moved)


def _tags(event: TopicEvent, fields: Sequence[str]) -> tuple[str, ...] | None:
    """Return the tags of an event; one that looks like the mark of a late delivery is left out."""
    if not fields or not event.payload:
        return None
    return tuple(each for each in tags_of(event.payload, fields) if each != OUT_OF_ORDER)
