"""Operations of operators on many jobs, and their audit log, on every store."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec import UNSET

from redrive.engine.frozen import freeze
from redrive.engine.lifecycle import State
from redrive.engine.queue import QueueChange
from redrive.engine.records import AttemptOutcome, Filter, Hold
from redrive.errors import IllegalMove
from redrive.policy import Policy
from redrive.stores.operations import admin, audit, queues, redriving
from redrive.stores.operations.admin import BulkResult
from tests.stores.helpers import Harness, failed, new, seconds


def log(store: Harness) -> list[tuple[str, str, object]]:
    """Return the audit log, newest first: actor, action, job ids."""
    lines = store.do(audit.audit())
    assert {store.now} == {line.at for line in lines}
    return [(line.actor, line.action, msgspec.json.decode(line.details)["ids"]) for line in lines]


def test_many_are_cancelled_at_once(store: Harness):
    """Cancel the matching unfinished jobs, close running attempts, and write an audit line."""
    running, dead = store.take(new()), store.dead()
    waiting, other = store.enqueue(new(delay=5), new("mail"))
    done = store.do(admin.cancel_all(Filter(task="send", limit=3), why="enough", actor="ann", now=store.now))

    assert BulkResult((running.id, waiting), last_id=waiting) == done
    assert [State.DEAD, State.READY] == [store.job(dead).state, store.job(other).state]
    assert [AttemptOutcome.CANCELLED] == [line.outcome for line in store.history(running.id)]
    assert [("ann", "cancel", [running.id, waiting])] == log(store)
    assert BulkResult(()) == store.do(admin.cancel_all(Filter(hold=Hold.DELAY), now=store.now))


def test_the_log_is_read_in_pages(store: Harness):
    """Pages of the audit log begin with the newest lines, or before a given line."""
    for number in store.enqueue(new(), new(), new()):
        store.cancel(number)
    newest, *_ = store.do(audit.audit(limit=1))

    assert [[3], [2], [1]] == [ids for _, _, ids in log(store)]
    assert [2, 1] == [line.id for line in store.do(audit.audit(before_id=newest.id))]


def test_a_dead_job_is_skipped_once(store: Harness):
    """Skipping stamps a dead job later than its death; skipped or caught ones stay, and those not dead are refused."""
    dead, caught = store.dead(), store.dead(new(retry="0 catch mend"))
    store.end(store.take())

    assert [True, False, False] == [store.do(admin.skip(n, actor="ann", now=store.now)) for n in (dead, dead, caught)]
    assert (store.now + timedelta.resolution, None) == (store.job(dead).skipped_at, store.job(caught).skipped_at)
    assert (True, False) == (store.job(dead).is_skipped, store.job(caught).is_skipped)
    assert [("ann", "skip", [dead])] == log(store)
    with pytest.raises(IllegalMove):
        store.do(admin.skip(store.put(), now=store.now))
    store.redrive()
    assert None is store.job(dead).skipped_at


def test_waiting_jobs_get_another_policy(store: Harness):
    """Changing the policy replaces policy and timeout; due times, states and open attempts stay."""
    present = freeze(Policy.parse("9 5s").with_(attempt_timeout="7s").durable())
    first = store.take(new(retry="2 1m"))
    store.end(first, failed())
    running = store.take(new())
    before = store.job(first.id)
    done = store.do(redriving.repolicy(Filter(), {"send": present}, actor="ann", now=store.now))
    after = store.job(first.id)

    assert ((first.id,), [(running.id, "runs: it keeps its policy until this attempt has ended")]) == (
        done.ids,
        list(done.kept),
    )
    assert (before.scheduled_at, before.state, before.hold) == (after.scheduled_at, after.state, after.hold)
    assert (present.policy, [("ann", "repolicy", [first.id])]) == (after.policy, log(store))

    store.wait(60)
    again = store.take()
    assert seconds(10) == store.end(again, failed()).last_delay
    assert () == store.do(redriving.repolicy(Filter(), {"send": present}, now=store.now)).ids


def test_the_audit_log_is_read_about_one_thing(store: Harness):
    """A job, a queue or a schedule has its own entries; a change of several jobs is about none of them."""
    first, second = store.enqueue(new(delay=9), new(delay=9))
    store.do(queues.change("mail", QueueChange(paused=True), actor="ann", now=store.now))
    store.do(admin.cancel(first, actor="bob", now=store.now))
    store.do(admin.cancel_all(Filter(ids=(second,)), actor="cid", now=store.now))
    store.enqueue(new(delay=9), new(delay=9))
    store.do(admin.cancel_all(Filter(), actor="dot", now=store.now))
    store.do(queues.change("mail", QueueChange(paused=False), actor="eve", now=store.now))

    def about(thing: str, **more: int) -> list[str]:
        """Return the actors of the entries about a thing, newest first."""
        return [each.actor for each in store.do(audit.audit(about=thing, **more))]

    assert ["eve", "ann"] == about("queue:mail")
    assert ["ann"] == about("queue:mail", before_id=store.do(audit.audit(about="queue:mail"))[0].id)
    assert ["eve"] == about("queue:mail", limit=1)
    assert ["bob"] == about(f"job:{first}")
    assert ["cid"] == about(f"job:{second}")
    assert [] == about("queue:other") == about("job:3")
    assert 5 == len(store.do(audit.audit()))


def test_a_pause_of_a_queue_has_its_actor(store: Harness):
    """It is that of the first pause, a limit changes nothing, and the end of the pause takes it away."""
    seen = []
    for paused, actor in ((True, "ann"), (True, "bob"), (UNSET, "cid"), (False, "dot"), (True, "eve")):
        change = QueueChange(concurrency=3) if paused is UNSET else QueueChange(paused=paused)
        seen.append(store.do(queues.change("mail", change, actor=actor, now=store.now)).paused_by)

    assert ["ann", "ann", "ann", None, "eve"] == seen
    assert "eve" == store.do(queues.settings("mail")).paused_by
    store.do(queues.declare({"code": QueueChange(paused=True)}, now=store.now))
    assert (True, None) == (
        (found := store.do(queues.settings("code"))).paused_at is not None,
        found.paused_by,
    )
