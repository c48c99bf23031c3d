"""A feeder: the job that delivers the events of one shard of a subscription, and never ends.

The job gives the feeder its lease; the engine's claim, heartbeat, rescue and fence apply to it as to every job. It
takes no slot of the worker. It reads the events of its window, calls the handler, and writes what is done every
`FLUSH_EVENTS` events, after `FLUSH_FOR`, and at the end: the position, and beyond it, behind an event that takes long,
the last event that is done with those before it that are not. An event that fails becomes a job of the subscription's
task in the transaction that writes it as done.

`redrive.engine.topics.Window` decides which events may be delivered; this module only carries it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TypeVar

from msgspec.structs import replace

from redrive.app.app import App
from redrive.app.attempts.origins import Delivery, FeedPlace
from redrive.app.events import emit_moved
from redrive.app.tasks.failures import failed, permanent
from redrive.app.topics.subscription import Subscription, envelopes, pack
from redrive.clock import Clock
from redrive.engine.frozen import freeze
from redrive.engine.lease import POISON_LIMIT
from redrive.engine.origin import Effect, of_topic
from redrive.engine.outcome import Outcome, Released, Succeeded, Suspended
from redrive.engine.records import Claim, Hold, NewJob
from redrive.engine.topics import Order, Shard, StoredEvent, SubscriptionRecord, Window, line_of
from redrive.errors import LeaseLost, StoreBusy, StoreFull, StoreOutcomeUnknown, StoreUnreachable
from redrive.observe import TopicDelivered, emit
from redrive.observe.listeners import DEBUG, heard
from redrive.runtime import failpoints, log, rng
from redrive.runtime.executor import Executor
from redrive.runtime.supervision import rest
from redrive.runtime.tracing import kept
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.topics import feed, subscriptions
from redrive.stores.operations.topics.feed import Attached, Diverted, FeederLook, FeedProgress, Lease, Reading, Turned
from redrive.stores.query import Operation

R = TypeVar("R")

# Events that are done between two writes: as many may be delivered again after a crash.
FLUSH_EVENTS = 1000

# Seconds after which what is done is written at the latest.
FLUSH_FOR = 0.25

# Seconds between two questions whether held lines have become free.
ASK_EVERY = 0.1

# Seconds between two polls without a notification.
NET = 1.0

# The delay after which another worker may take a shard with an event that this code cannot read.
STUCK_FOR = timedelta(seconds=5)

# Leases of deliveries, which only this process uses: negative, so that they are not those of jobs.
_NUMBERS = itertools.count(1)


class Feeder:
    """The feeder of one shard under one lease.

    Attributes:
        claim: the claim of its job.
        idle: True while nothing is to be delivered, as far as the feeder has seen.
        delivered: the number of calls of the handler.
    """

    def __init__(
        self,
        app: App,
        clock: Clock,
        claim: Claim,
        subscription: Subscription,
        executor: Executor,
        *,
        cut: set[int],
        sample: Callable[[], float] = rng.sample,
    ) -> None:
        self._app = app
        self._clock = clock
        self.claim = claim
        self._subscription = subscription
        self._executor = executor
        self._cut = cut
        self._leases: dict[asyncio.Task[None], int] = {}
        self._sample = sample
        self.lease = Lease(claim.id, claim.lease_id, claim.worker_id)
        self.idle = False
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._stopping, self._why = False, ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._record: SubscriptionRecord
        self._shard: Shard | None = None
        self._window = Window(Order.NONE)
        self._complete = self._large = self._moved = self._paused = False
        self._looked = True
        self._read_id = 0
        self._stuck: tuple[StoredEvent, str] | None = None
        self._diverted: list[tuple[Diverted, Claim | None]] = []
        self._effects: list[Effect] = []
        self._done: set[int] = set()
        """Events with a row in ``redrive_done`` when the feeder attached."""
        self._passed: set[int] = set()
        """Events of this shard with a row in ``redrive_done``, to be deleted when the shard has them as done."""
        self._again: set[int] = set()
        self._redelivered_until = self._suspect_until = 0
        self._healthy = claim.crashes == 0
        self._flushed = 0
        self._since = 0.0
        self.delivered = 0

    # ---------------------------------------------------------------- called by the worker

    def see(self, look: FeederLook) -> None:
        """Receive the answer to a poll; wake the feeder if it has something to do."""
        self._paused = look.paused
        if self._shard is not None and look.epoch != self._shard.epoch:
            self._moved = True
        if look.news or look.ending:
            self._looked = True
            self.idle = self.idle and (self._paused or not self._complete or bool(self._window.unfinished))
        self._wake.set()

    def ask(self) -> None:
        """Ask again whether held lines are free, because jobs of this worker have ended; be not idle until then."""
        if self._window.held:
            self.idle = False
            self._wake.set()

    @property
    def free(self) -> bool:
        """True while no delivery runs or waits, so that a new event would be delivered at once."""
        return not self._tasks and not self._window.waiting

    def stop(self, why: str = "its worker shut down") -> None:
        """Start no further delivery, write the position, and give the shard back. Safe to call from any thread."""
        self._stopping, self._why = True, why
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> Outcome:
        """Deliver events until the feeder is stopped, or its shard is gone."""
        try:
            ended = await self._go(endless=True)
        except LeaseLost:
            # The shard does not exist any more, or another worker has it; then this end is not written.
            return Succeeded()
        finally:
            await self._cancel()
        assert ended is not None  # only a drain returns otherwise
        return ended

    # The test kit has one feeder at a time deliver what it can.
    async def drain(self) -> Outcome | None:
        """Deliver the events that can be delivered now; return how the feeder ended, None if it has not."""
        self._looked = True
        try:
            return await self._go(endless=False)
        except LeaseLost:
            return Succeeded()

    async def leave(self) -> None:
        """Write the position at the end of a drain."""
        if self._shard is not None and not self._moved:
            with contextlib.suppress(LeaseLost):
                await self._turn(None)

    # ---------------------------------------------------------------- the loop

    async def _cancel(self) -> None:
        """Cancel the deliveries that run; nothing of them is recorded."""
        self._stopping = True
        for task, lease_id in self._leases.items():
            self._cut.add(lease_id)
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def leases(self) -> list[int]:
        """Return the leases of the deliveries that run. Safe to call from any thread."""
        return list(self._leases.values())

    async def _go(self, *, endless: bool) -> Outcome | None:
        if self._shard is None and not await self._attach():
            return Succeeded()
        while True:
            self._wake.clear()
            if self._moved and not self._tasks:
                await self._flush()
                if not await self._attach():
                    return Succeeded()
            if self._stopping and not self._tasks:
                return await self._release(self._why)
            self._start()
            if self._is_stuck:
                return await self._give_up_event(endless=endless)
            if await self._advance():
                continue
            if not endless and not self._tasks:
                await self._flush()
                if not await self._ask():
                    return None
                continue
            # Nothing can be delivered now: no event is new, its line is held, or the subscription is paused.
            self.idle = not self._tasks and not self._pending
            await self._rest()
            self.idle = False

    @property
    def _is_stuck(self) -> bool:
        """True if only an event is left that this code cannot read."""
        return self._stuck is not None and not self._tasks and not self._window.unfinished and not self._diverted

    async def _give_up_event(self, *, endless: bool) -> Outcome | None:
        """Leave an event that this code cannot read to a worker with other code."""
        assert self._stuck is not None  # the caller has checked
        if endless:
            return await self._release(self._stuck[1], STUCK_FOR)
        await self._turn(None)
        return None

    async def _rest(self) -> None:
        seconds = NET
        if self._pending:
            seconds = FLUSH_FOR
        if self._window.held:
            seconds = ASK_EVERY
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _ask(self) -> bool:
        """Ask whether held lines have become free; return True if one has."""
        # No event of such a line may wait to be written as a job.
        unwritten = {each.job.partition for each, _ in self._diverted}
        lines = [line for line in self._window.held if line not in unwritten]
        if not lines:
            return False
        free = await self._stored(lambda: feed.free(self._record, lines))
        self._window.release(free)
        return bool(free)

    @property
    def _pending(self) -> bool:
        """True if something is to be written."""
        return bool(self._diverted or self._effects) or self._window.ended > self._flushed

    @property
    def _full(self) -> bool:
        """True if as many events are done and not written as may be; none starts then."""
        unwritten = self._window.ended - self._flushed
        # Those that run may end during the write. Very many of them must not make each end a write.
        return unwritten >= FLUSH_EVENTS // 2 and unwritten + len(self._tasks) >= FLUSH_EVENTS

    async def _advance(self) -> bool:
        """Write, read and ask what is due; return True if the loop should continue at once."""
        if self._moved:
            return False
        window, now = self._window, self._clock.monotonic()
        finished = self._complete and not window.unfinished and not window.running and self._stuck is None
        if finished and self._looked and not self._stopping:
            return await self._next_window()
        if not self._complete and window.waiting < feed.PAGE // 2 and self._stuck is None and not self._stopping:
            await self._turn(Reading(after=self._read_id, large=self._large))
            return True
        urgent = bool(self._diverted or self._effects) or self._full
        late = window.ended > self._flushed and now >= self._since + FLUSH_FOR
        if late and finished and not urgent and not self._stopping and not self._paused:
            # The end of a window is written as its end, so that an idle subscription has none open.
            return await self._next_window()
        if urgent or late:
            await self._turn(None)
            return True
        return await self._ask()

    async def _next_window(self) -> bool:
        if self._paused:
            return False
        self._looked = False
        turned = await self._turn(Reading(), closes=self._here.until is not None)
        if not turned.moved and turned.shard.ended:
            await self._end_shard()
        return True

    @property
    def _here(self) -> Shard:
        assert self._shard is not None  # the feeder reads it first
        return self._shard

    async def _end_shard(self) -> None:
        """End a shard of a subscription that gets another number of shards; the last one makes the new ones."""
        place, policy = (self._record.topic, self._record.name), self._subscription.definition.policy
        # If another shard has not ended, the feeder asks again after the next poll.
        self._moved = await self._stored(lambda: subscriptions.end_reshard(*place, policy, now=self._app.now()))

    # ---------------------------------------------------------------- reading and writing

    async def _attach(self) -> bool:
        """Read the shard; return False if it does not exist any more."""
        found: Attached | None = await self._stored(lambda: feed.attach(self.lease))
        if found is None:
            return False
        first = self._shard is None
        self._record, shard = found.subscription, found.shard
        self._paused = self._record.paused_at is not None
        self._done = set(found.done)
        self._passed.clear()
        if first and shard.until is not None:
            self._redelivered_until = shard.ahead_id
            if self.claim.crashes >= POISON_LIMIT - 1:
                self._suspect_until = shard.ahead_id
        self._moved, self._stuck, self._looked = False, None, True
        self._began(shard, found.held)
        return True

    def _began(self, shard: Shard, held: Collection[str] = ()) -> None:
        """Begin with the window of a shard, or with none."""
        self._shard = shard
        self._window = Window(
            self._record.ordering,
            at_once=self._subscription.at_once,
            batch=self._subscription.batch or 1,
            at_id=shard.at_id,
            done_id=shard.done_id,
            unfinished=shard.unfinished,
            held=held,
        )
        self._complete = shard.until is None
        self._large = False
        self._read_id, self._flushed = shard.at_id, 0

    async def _stored(self, operation: Callable[[], Operation[R]]) -> R:
        """Run an operation, again and again while the database is busy, full or unreachable."""
        tries = 0
        while True:
            try:
                return await self._app.store.arun(operation())
            except (StoreBusy, StoreFull, StoreUnreachable, StoreOutcomeUnknown) as error:
                tries += 1
                log.warning("delivering %s waits: %s", self._subscription.name, error)
                await self._clock.asleep(rest(tries))

    async def _turn(self, reading: Reading | None, *, closes: bool = False) -> Turned:
        """Write the progress, and read."""
        diverted, effects = tuple(self._diverted), tuple(self._effects)
        at_id, ended = self._window.at_id, self._window.ended
        done_id, unfinished = self._window.beyond()
        progress = FeedProgress(
            epoch=self._here.epoch,
            at_id=at_id,
            done_id=done_id,
            unfinished=tuple(unfinished),
            turn=self._here.turns + 1,
            closes=closes,
            diverted=tuple(each for each, _ in diverted),
            effects=effects,
            done=tuple(self._passed),
            stuck=None if self._stuck is None else (self._stuck[0].id, self._stuck[1]),
            healthy=not self._healthy and at_id >= self._redelivered_until,
            resting=not self._tasks and not self._window.waiting,
        )
        failpoints.at("before_feed")
        # Events that handlers have published, and jobs that are due at once, wake other workers.
        wakes = bool(effects or diverted)
        turned = await self._stored(
            lambda: replace(feed.turn(self.lease, self._record, progress, reading, now=self._app.now()), wakes=wakes)
        )
        failpoints.at("after_feed")
        del self._diverted[: len(diverted)], self._effects[: len(effects)]
        self._done.difference_update(progress.done)
        self._passed.difference_update(progress.done)
        self._passed.update(each.event_id for each, _ in diverted if each.outcome is not None)
        self._healthy = self._healthy or progress.healthy
        self._since = self._clock.monotonic()
        if turned.moved:
            self._moved = True
            return turned
        self._flushed = ended
        self._report(diverted, turned)
        self._take(turned, reading)
        return turned

    def _take(self, turned: Turned, reading: Reading | None) -> None:
        """Add the events of a page to the window."""
        if turned.shard.until != self._here.until or turned.shard.seen != self._here.seen:
            # Events that commit late may have lower ids than those of the window that a crash has interrupted.
            self._redelivered_until = self._suspect_until = 0
            self._began(turned.shard, self._window.held)
        self._shard = turned.shard
        if reading is None:
            return
        self._complete, self._large = turned.complete, turned.large
        events = turned.events
        for place, event in enumerate(events):
            problem = None if event.payload is None else self._subscription.topic.problem(event)
            if problem is not None:
                self._stuck = (event, problem)
                self._complete = True
                events = events[:place]
                log.warning("%s waits for a worker with other code: %s", self._record.task, problem)
                break
        if events:
            self._read_id = events[-1].id
            self._window.add(events, done=self._done)
            if self._done:
                self._passed.update(each.id for each in events if each.payload is not None and each.id in self._done)
            self._behind()

    def _report(self, diverted: Sequence[tuple[Diverted, Claim | None]], turned: Turned) -> None:
        """Emit the events of first attempts that failed, and call the hooks of the policy."""
        if not turned.settled:
            return
        emit_moved([transition for _, transition in turned.settled])
        self._app.settled([transition for _, transition in turned.settled])
        tried = {each.job.origin: (each, claim) for each, claim in diverted}
        endings, moved = [], []
        for job, transition in turned.settled:
            each, claim = tried[job.origin]
            if claim is None:
                continue
            assert each.outcome is not None  # its first attempt was settled
            endings.append(Ending(claim, each.outcome, each.sample))
            moved.append(replace(transition, lease_id=claim.lease_id))
        self._executor.functions.report(endings, moved)

    async def _flush(self) -> None:
        if self._pending or self._passed:
            await self._turn(None)

    async def _release(self, why: str, delay: timedelta = timedelta(0)) -> Outcome:
        """Write the position and give the shard back."""
        if not self._moved:
            await self._turn(None)
        return Released(why, delay, Hold.RELEASE if self._stuck is None else Hold.BAD_PAYLOAD)

    # ---------------------------------------------------------------- deliveries

    def _start(self) -> None:
        """Start the deliveries that may start now."""
        if self._stopping or self._paused or self._moved:
            return
        while not self._full and (events := self._window.next()):
            if events[0].id <= self._suspect_until:
                # An event that may have killed its worker gets a job of its own, which has a limit of crashes.
                self._window.stopped(events, failed=events)
                self._divert([(event, None, None, None) for event in events])
                continue
            claim = self._executor.functions.present(self._delivery_claim(events))
            task = self._loop.create_task(self._deliver(events, claim))
            self._tasks.add(task)
            self._leases[task] = claim.lease_id
            task.add_done_callback(functools.partial(self._finished, events))

    def _finished(self, events: Sequence[StoredEvent], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._cut.discard(self._leases.pop(task))
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # A defect of the worker itself: the events become jobs.
            log.error("%s: the worker itself failed: %r", self._record.task, error)
            self._window.stopped(events, failed=events)
            self._divert([(event, failed(error), None, None) for event in events])

    async def _deliver(self, events: tuple[StoredEvent, ...], claim: Claim) -> None:
        again = events[0].id <= self._redelivered_until or any(event.id in self._again for event in events)
        place = FeedPlace(self.lease, self._here)
        delivery = Delivery(envelopes(claim.payload or b""), redelivered=again, feed=place)
        began = self._clock.monotonic()
        outcome = await self._executor.run(claim, delivery)
        self.delivered += 1
        self._ended(events, claim, outcome, delivery, kept())
        if not heard("redrive.topics", DEBUG):
            return
        emit(
            TopicDelivered(
                topic=self._record.topic,
                subscription=self._record.name,
                count=len(events),
                failed=len(events) if not isinstance(outcome, Succeeded) else len(delivery.failed),
                took=timedelta(seconds=self._clock.monotonic() - began),
                waited=max(claim.claimed_at - events[0].at, timedelta(0)),
            )
        )

    def _delivery_claim(self, events: tuple[StoredEvent, ...]) -> Claim:
        """Return a claim of events, as the executor takes it; it exists only in this process."""
        now = self._app.now() or self._clock.now()
        return Claim(
            id=self.claim.id,
            lease_id=-next(_NUMBERS),
            task=self._subscription.name,
            queue=self._subscription.name,
            worker_id=self.claim.worker_id,
            started_at=now,
            claimed_at=now,
            payload=pack(events),
            policy=self._subscription.policy,
            scheduled_at=events[0].at,
            origin=of_topic(self._record.topic, self._record.name, events[0].id),
        )

    def _ended(
        self, events: tuple[StoredEvent, ...], claim: Claim, outcome: Outcome, delivery: Delivery, trace: str | None
    ) -> None:
        """Record the end of a delivery."""
        if delivery.committed:
            self._passed.update(each.id for place, each in enumerate(events) if place not in delivery.failed)
        if isinstance(outcome, Suspended):
            outcome = permanent("BAD_RESULT", "a subscription cannot return Pending: no job waits for the answer")
        if isinstance(outcome, Succeeded):
            bad = {events[place]: error for place, error in delivery.failed.items()}
            self._effects.extend(outcome.effects)
            self._window.stopped(events, failed=tuple(bad))
            self._window.finish(event.id for event in events if event not in bad)
            self._divert([(event, failed(error), claim, trace) for event, error in bad.items()])
        elif len(events) > 1:
            # It is unknown which of the events has failed: each is delivered alone.
            self._again.update(event.id for event in events)
            self._window.retry(events)
        else:
            self._window.stopped(events, failed=events)
            self._divert([(events[0], outcome, claim, trace)])
        self._behind()

    def _behind(self) -> None:
        """Make jobs of the events behind a failed one of their key."""
        found = self._window.behind()
        if found:
            self._divert([(event, None, None, None) for event in found])

    def _divert(self, given: Sequence[tuple[StoredEvent, Outcome | None, Claim | None, str | None]]) -> None:
        """Have events written as jobs with the next write of the position."""
        for event, outcome, claim, trace in given:
            new = NewJob(
                task=self._subscription.name,
                queue=self._subscription.name,
                priority=0,
                payload=pack((event,)),
                policy=freeze(self._subscription.policy),
                partition=line_of(self._record.ordering, event),
                origin=of_topic(self._record.topic, self._record.name, event.id),
            )
            self._diverted.append((Diverted(new, outcome, self._sample(), trace), claim))
        self._window.finish(event.id for event, *_ in given)
        self._behind()
