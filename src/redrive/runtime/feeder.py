"""A feeder: the job that delivers the events of one shard of a subscription, and never ends.

The job gives the feeder its lease; the engine's claim, heartbeat, rescue and fence apply to it as to every job. It
takes no slot of the worker. Its loop::

    attach ----> start deliveries ----> advance ----> rest until woken: a poll, an end of a delivery, a stop
      ^               ^                    |  |              |
      |               `--------------------'  |              |
      |                 wrote, read or asked  |              |
      `-- the shard was moved, or a turn lost +--------------'
                                              `---> release: the shard is given back

`_turn` is the one statement of a feeder: it writes what is done and reads a page of events. That happens after
`FLUSH_EVENTS` events, after `FLUSH_FOR`, and at the end of a window: the position, and beyond it, behind an event that
takes long, the last event that is done with those before it that are not. An event that fails becomes a job of the
subscription's task in the transaction that writes it as done.

`redrive.engine.topics.Window` decides which events may be delivered, and `redrive.runtime.deliveries` calls the handler
with them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TypeVar

from msgspec.structs import replace

from redrive.app.app import App
from redrive.app.attempts.origins import FeedPlace
from redrive.app.topics.subscription import Subscription
from redrive.clock import Clock
from redrive.engine.lease import POISON_LIMIT
from redrive.engine.outcome import Outcome, Released, Succeeded
from redrive.engine.records import Claim, Hold
from redrive.engine.topics import Shard, SubscriptionRecord, TopicEvent, Window
from redrive.errors import LeaseLost, StoreBusy, StoreFull, StoreOutcomeUnknown, StoreUnreachable
from redrive.runtime import failpoints, log, rng
from redrive.runtime.deliveries import Deliveries
from redrive.runtime.executor import Executor
from redrive.runtime.supervision import Outage, rest
from redrive.stores.operations.topics import feed, subscriptions
from redrive.stores.operations.topics.feed import Attached, FeederLook, FeedProgress, Lease, Reading, Turned
from redrive.stores.query import Operation

R = TypeVar("R")

# Seconds after which what is done is written at the latest.
FLUSH_FOR = 0.25

# Seconds between two questions whether held lines have become free.
ASK_EVERY = 0.1

# Seconds between two polls without a notification.
NET = 1.0

# The delay after which another worker may take a shard with an event that this code cannot read.
STUCK_FOR = timedelta(seconds=5)


class Feeder:
    """The feeder of one shard under one lease.

    Attributes:
        claim: the claim of its job.
        calls: its deliveries.
        idle: True while nothing is to be delivered, as far as the feeder has seen.
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
        outage: Outage,
        sample: Callable[[], float] = rng.sample,
        era: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._app = app
        self._outage = outage
        self._era = era
        self._clock = clock
        self.claim = claim
        self._subscription = subscription
        self.lease: Lease = Lease(claim.id, claim.lease_id, claim.worker_id)
        self.idle: bool = False
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.calls: Deliveries = Deliveries(
            app, clock, claim, subscription, executor, cut=cut, sample=sample, wake=self._wake
        )
        self._stopping, self._why = False, ""
        self._record: SubscriptionRecord
        self._shard: Shard | None = None
        self._complete = self._large = self._moved = self._paused = False
        self._looked = True
        self._read_id = 0
        self._stuck: tuple[TopicEvent, str] | None = None
        self._done: set[int] = set()
        """Events with a row in ``redrive_done`` when the feeder attached."""
        self._healthy = claim.crashes == 0
        self._since = 0.0

    # ---------------------------------------------------------------- called by the worker

    def see(self, look: FeederLook) -> None:
        """Receive the answer to a poll; wake the feeder if it has something to do."""
        self._paused = look.paused
        if self._shard is not None and look.epoch != self._shard.epoch:
            self._moved = True
        if look.news or look.ending:
            self._looked = True
            self.idle = self.idle and (self._paused or not self._complete or bool(self.calls.window.unfinished))
        self._wake.set()

    def ask(self) -> None:
        """Ask again whether held lines are free, because jobs of this worker have ended; be not idle until then."""
        if self.calls.window.held:
            self.idle = False
            self._wake.set()

    @property
    def free(self) -> bool:
        """True while no delivery runs or waits, so that a new event would be delivered at once."""
        return not self.calls.tasks and not self.calls.window.waiting

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
            self._stopping = True
            await self.calls.cancel()
        assert ended is not None
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

    async def _go(self, *, endless: bool) -> Outcome | None:
        if self._shard is None and not await self._attach():
            return Succeeded()
        while True:
            self._wake.clear()
            if self._moved and not self.calls.tasks:
                await self._flush()
                if not await self._attach():
                    return Succeeded()
            if self._stopping and not self.calls.tasks:
                return await self._release(self._why)
            self._start()
            if self._is_stuck:
                return await self._give_up_event(endless=endless)
            if await self._advance():
                continue
            if not endless and not self.calls.tasks:
                await self._flush()
                if not await self._ask():
                    return None
                continue
            # Nothing can be delivered now: no event is new, its line is held, or the subscription is paused.
            self.idle = not self.calls.tasks and not self.calls.pending
            await self._rest()
            self.idle = False

    def _start(self) -> None:
        if not (self._stopping or self._paused or self._moved):
            self.calls.start()

    @property
    def _is_stuck(self) -> bool:
        """True if only an event is left that this code cannot read."""
        calls = self.calls
        return self._stuck is not None and not (calls.tasks or calls.window.unfinished or calls.diverted)

    async def _give_up_event(self, *, endless: bool) -> Outcome | None:
        """Leave an event that this code cannot read to a worker with other code."""
        assert self._stuck is not None
        if endless:
            return await self._release(self._stuck[1], STUCK_FOR)
        await self._turn(None)
        return None

    async def _rest(self) -> None:
        seconds = NET
        if self.calls.pending:
            seconds = FLUSH_FOR
        if self.calls.window.held:
            seconds = ASK_EVERY
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _ask(self) -> bool:
        """Ask whether held lines have become free; return True if one has."""
        # No event of such a line may wait to be written as a job.
        unwritten = {each.job.partition for each, _ in self.calls.diverted}
        lines = [line for line in self.calls.window.held if line not in unwritten]
        if not lines:
            return False
        free = await self._stored(lambda: feed.free(self._record, lines))
        self.calls.window.release(free)
        return bool(free)

    async def _advance(self) -> bool:
        """Write, read and ask what is due; return True if the loop should continue at once."""
        if self._moved:
            return False
        window, now = self.calls.window, self._clock.monotonic()
        finished = self._complete and not window.unfinished and not window.running and self._stuck is None
        if finished and self._looked and not self._stopping:
            return await self._next_window()
        if not self._complete and window.waiting < feed.PAGE // 2 and self._stuck is None and not self._stopping:
            await self._turn(Reading(after=self._read_id, large=self._large))
            return True
        urgent = bool(self.calls.diverted or self.calls.effects) or self.calls.full
        late = window.ended > self.calls.flushed and now >= self._since + FLUSH_FOR
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
        assert self._shard is not None
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
        self.calls.record = self._record
        self._paused = self._record.paused_at is not None
        self._done = set(found.done)
        self.calls.passed.clear()
        if first and shard.until is not None:
            self.calls.redelivered_until = shard.ahead_id
            if self.claim.crashes >= POISON_LIMIT - 1:
                self.calls.suspect_until = shard.ahead_id
        self._moved, self._stuck, self._looked = False, None, True
        self._began(shard, found.held)
        return True

    def _began(self, shard: Shard, held: Collection[str] = ()) -> None:
        """Begin with the window of a shard, or with none."""
        self._shard = shard
        self.calls.place = FeedPlace(self.lease, shard)
        self.calls.window = Window(
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
        self._read_id, self.calls.flushed = shard.at_id, 0

    async def _stored(self, operation: Callable[[], Operation[R]]) -> R:
        """Run an operation, again and again while the database is busy, full or unreachable."""
        tries = 0
        while True:
            try:
                done = await self._app.store.arun(operation())
            except (StoreBusy, StoreFull, StoreUnreachable, StoreOutcomeUnknown) as error:
                tries += 1
                self._outage.failed(f"delivering {self._subscription.name}", error)
                await self._clock.asleep(rest(tries))
            else:
                if tries:
                    self._outage.worked(f"delivering {self._subscription.name}")
                return done

    async def _turn(self, reading: Reading | None, *, closes: bool = False) -> Turned:
        """Write the progress, and read."""
        diverted, ended, progress = tuple(self.calls.diverted), self.calls.window.ended, self._progress(closes=closes)
        failpoints.at("before_feed")
        # Events that handlers have published, and jobs that are due at once, wake other workers.
        wakes = bool(progress.effects or diverted)
        try:
            turned = await self._stored(
                lambda: replace(
                    feed.turn(self.lease, self._record, progress, reading, now=self._app.now()),
                    wakes=wakes,
                    era=self._era(),
                )
            )
        except feed.DeliveryLost as error:
            # The events are delivered again, with their effects. Until the shard is read again, each turn fails alike.
            log.warning("delivering %s begins again: %s", self._subscription.name, error)
            del self.calls.diverted[: len(diverted)], self.calls.effects[: len(progress.effects)]
            self._moved = True
            return Turned(self._here, moved=True)
        failpoints.at("after_feed")
        del self.calls.diverted[: len(diverted)], self.calls.effects[: len(progress.effects)]
        self._done.difference_update(progress.done)
        self.calls.passed.difference_update(progress.done)
        self.calls.passed.update(each.event_id for each, _ in diverted if each.outcome is not None)
        self._healthy = self._healthy or progress.healthy
        self._since = self._clock.monotonic()
        if turned.moved:
            self._moved = True
            if turned.shard.epoch != self._here.epoch:
                # Deliveries that end until the shard is read again have effects, too, and need a turn of their own.
                # After lost turns they must have none: the events are delivered again.
                self._shard = replace(self._here, turns=turned.shard.turns)
            return turned
        self.calls.flushed = ended
        self.calls.report(diverted, turned.settled)
        self._take(turned, reading)
        return turned

    def _progress(self, *, closes: bool) -> FeedProgress:
        """Return the progress that the next turn writes."""
        at_id = self.calls.window.at_id
        done_id, unfinished = self.calls.window.beyond()
        return FeedProgress(
            epoch=self._here.epoch,
            at_id=at_id,
            done_id=done_id,
            unfinished=tuple(unfinished),
            turn=self._here.turns + 1,
            closes=closes,
            diverted=tuple(each for each, _ in self.calls.diverted),
            effects=tuple(self.calls.effects),
            done=tuple(self.calls.passed),
            stuck=None if self._stuck is None else (self._stuck[0].id, self._stuck[1]),
            healthy=not self._healthy and at_id >= self.calls.redelivered_until,
            resting=not self.calls.tasks and not self.calls.window.waiting,
        )

    def _take(self, turned: Turned, reading: Reading | None) -> None:
        """Add the events of a page to the window."""
        if turned.shard.until != self._here.until or turned.shard.seen != self._here.seen:
            # Events that commit late may have lower ids than those of the window that a crash has interrupted.
            self.calls.redelivered_until = self.calls.suspect_until = 0
            self._began(turned.shard, self.calls.window.held)
        self._shard = turned.shard
        self.calls.place = FeedPlace(self.lease, turned.shard)
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
            self.calls.window.add(events, done=self._done)
            if self._done:
                self.calls.passed.update(
                    each.id for each in events if each.payload is not None and each.id in self._done
                )
            self.calls.behind()

    async def _flush(self) -> None:
        if self.calls.pending or self.calls.passed:
            await self._turn(None)

    async def _release(self, why: str, delay: timedelta = timedelta(0)) -> Outcome:
        """Write the position and give the shard back."""
        if not self._moved:
            await self._turn(None)
        return Released(why, delay, Hold.RELEASE if self._stuck is None else Hold.BAD_PAYLOAD)
