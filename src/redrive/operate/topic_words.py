"""Subscriptions in words, for the command line and the dashboard. PURE."""

from __future__ import annotations

from redrive.engine.commands import command
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import Hold
from redrive.engine.topics import DeliveryRecord, Order
from redrive.stores.operations.topics.lag import SubscriptionStatus

# Characters of an error that are shown.
_ERROR_TEXT = 80


def shards(count: int) -> str:
    """Return a number of shards."""
    return "1 shard" if count == 1 else f"{count} shards"


def state(status: SubscriptionStatus) -> str:
    """Return what keeps a subscription from delivering; ``open`` if nothing does."""
    known = status.subscription
    parts = []
    if known.paused_at is not None:
        parts.append(f"paused since {known.paused_at:%Y-%m-%d %H:%M:%S} UTC")
    parts += [f"waits: {shard.stuck_why}" for shard in status.shards if shard.stuck_why is not None][:1]
    if known.reshard is not None:
        parts.append(f"gets {shards(known.reshard)}")
    by = status.held_by
    if by and known.ordering is Order.STRICT:
        parts.append(f"held by {held(by[0])}")
    elif by:
        parts.append("1 key held" if len(by) == 1 else f"{len(by)} keys held")
    if not any(job.state is State.RUNNING for job in status.feeders):
        parts.append("no worker delivers")
    return "; ".join(parts) or "open"


def feeder(job: State | None) -> str:
    """Return what the job that delivers the events of a shard does; None is a deleted one."""
    if job is State.RUNNING:
        return "runs"
    return "has ended" if job is None or job in FINAL else "waits for a worker with the code of the subscription"


def held(each: DeliveryRecord) -> str:
    """Return a delivery that holds others."""
    if each.state is State.DEAD:
        return dead(each)
    is_retried = each.state is State.READY and each.hold is Hold.RETRY
    when = f", next at {each.scheduled_at:%Y-%m-%d %H:%M:%S} UTC" if is_retried else ""
    mark = ", redriven out of order" if each.out_of_order else ""
    error = f": {_error(each)}" if each.error else ""
    return f"event {each.event_id} (job {each.id}){mark}, attempt {max(each.attempt, 1)}{when}{error}"


def dead(each: DeliveryRecord) -> str:
    """Return a dead event, with the first line of its error."""
    mark = ", redriven out of order" if each.out_of_order else ""
    return f"dead event {each.event_id} (job {each.id}{mark}): {_error(each)}"


def _error(each: DeliveryRecord) -> str:
    error = (each.error or "").partition("\n")[0]
    return f"{error[:_ERROR_TEXT]}..." if len(error) > _ERROR_TEXT else error


def remedies(status: SubscriptionStatus, app: str) -> tuple[str, ...]:
    """Return the commands that let a subscription go on that is paused or held, each with an alternative.

    Args:
        status: its status.
        app: the App in these commands, as ``module:app``.
    """
    place = app, status.subscription.topic, status.subscription.name
    found = []
    if status.subscription.paused_at is not None:
        found.append(command("topics resume", *place))
    for each in status.held_by[:1]:
        again = ("topics redrive", *place) if each.state is State.DEAD else ("jobs retry", app, str(each.id))
        found.append(f"{command(*again)}, or {command('topics skip', *place, str(each.event_id))}")
    return tuple(found)
