"""Content of every kind for a database that is kept, made by the app of `tests.upgrades.work` in virtual time.

Each job has a tag, by which it is found again, whatever its id. The clock stands at `BEGIN` first and at `END` at last.

The databases of earlier versions are compared by `found`, and finished by `finish`, as well: what is added there for a
later version has to allow that they lack it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

import redrive
from redrive.engine.records import JobRecord, Process
from redrive.runtime.worker import Worker
from redrive.stores.operations import counters, leases, requests, sessions, workers
from redrive.stores.operations.leases import Claimed
from redrive.testing import VirtualClock, drain
from tests.upgrades import work
from tests.upgrades.work import Created, Expired, Paid, app

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2026, 1, 1, 4, tzinfo=UTC)

ACTOR = "ann"

TROUBLE = {
    "dead", "caught", "retrying", "pay 1", "pay 2", "pay 3", "pay 4", "prices disabled", "prices troubled", "pay busy",
    "pay failed", "ship 2", "ship 5", "audit 2", "undone last", "tried second",
    "snoozed",
}  # fmt: skip
"""The effects that fail while the database is made."""


def tagged(task: Any, name: str, **options: Any) -> redrive.Job[Any]:
    """Enqueue a job with its name as its argument and its tag."""
    return task.options(tags=[name], **options).enqueue(name)


def fill(clock: VirtualClock) -> None:
    """Fill the empty database of the app, whose clock stands at `BEGIN`."""
    work.TROUBLE.update(TROUBLE)
    app.open()
    _ended()
    _until(clock, END - timedelta(hours=2))
    work.sleeps.start(id="crashed")
    _until(clock, END - timedelta(seconds=1))
    _waiting()
    _runs()
    _topics()
    drain(app, within=0, sample=lambda: 0.0)
    _operated()
    clock.advance(END - clock.now())
    _crashed()
    _fresh()
    work.TROUBLE.clear()


def _until(clock: VirtualClock, at: datetime) -> None:
    """Run what is due until an instant."""
    drain(app, within=at - clock.now(), sample=lambda: 0.0)
    clock.advance(at - clock.now())


def _ended() -> None:
    """Have what ends: jobs, an instance, a run, events; by a worker with all its duties."""
    for name in ("done", "found"):
        tagged(work.do, name, idempotency_key=f"request {name}")
    for task, name in ((work.risk, "dead"), (work.caught, "caught")):
        tagged(task, name)
    app.queue("paused").pause(actor=ACTOR)
    tagged(work.do, "expired", queue="paused", expires="1h")
    tagged(work.do, "cancelled", delay="1d").cancel(actor=ACTOR)
    app.schedules.create("remind-acme", "45 * * * *", work.remind, arguments={"customer": "acme"}, actor=ACTOR)
    app.schedules.create("remind-off", "45 * * * *", work.remind, arguments={"customer": "off"}, actor=ACTOR)
    app.schedules.pause("remind-off", actor=ACTOR)
    for key in ("fresh", "disabled"):
        work.prices.track(key, key)
    for key in ("complete", "waiting", "failed", "busy"):
        work.payment.send(key, Created(100))
    work.orders.publish(0, key="a")
    work.sleeps.start(id="finished")
    asyncio.run(Worker(app, until_empty=True, name="old").run())
    for key in ("complete", "failed"):
        work.payment.send(key, Paid("r-1"), key=f"webhook {key}")


def _waiting() -> None:
    """Enqueue jobs that wait for each reason that there is."""
    tagged(work.do, "retrying")
    tagged(work.do, "delayed", delay="2h")
    tagged(work.do, "unique", delay="1h", key="the only one")
    tagged(work.do, "late", delay="1h", expires="3h")
    tagged(work.later, "snoozed")
    tagged(work.ask, "asked")
    tagged(work.ask, "forgotten")
    tagged(work.do.debounce("burst", quiet="30m", at_most="1h"), "debounced")
    tagged(work.do, "paused", queue="paused")
    for name in ("rated 1", "rated 2", "rated 3"):
        tagged(work.do, name, queue="rated")
    tagged(work.do, "ordered 1", queue="ordered", partition="acme", delay="1h")
    tagged(work.do, "ordered 2", queue="ordered", partition="acme")
    for name in ("parted 1", "parted 2"):
        tagged(work.do, name, partition="acme", priority=5)
    for number in range(1, 5):
        tagged(work.pay, f"pay {number}")
    batch = app.batch()
    batch.add(work.do.options(tags=["member 1"]), "member 1")
    batch.add(work.do.options(tags=["member 2"], delay="1h"), "member 2")
    batch.enqueue(work.do.options(tags=["follows"]), "follows")
    _strange()
    work.prices.track("troubled", "troubled")
    work.payment.send("unpaid", Created(100))
    work.payment.send("busy", Paid("r-2"))


def _strange() -> None:
    """Enqueue jobs of another program, whose code does not fit that of the workers."""
    other = redrive.App(app.url, clock=app.clock)
    for task in ("do", "of no worker"):
        other.named(task).options(tags=[f"strange {task}"]).enqueue(no_such_argument=1)
    other.close()


def _runs() -> None:
    """Start runs that stop at each place at which a run can wait."""
    work.sleeps.start(id="sleeping")
    work.asks.start(id="asking")
    work.asks.start(id="answered")
    work.calls.start(id="calling")
    work.undoes.start(id="undone")
    work.retries.start(id="tried")
    work.sleeps.start(id="held")


def _topics() -> None:
    """Publish events that are delivered, that fail, and that wait behind others."""
    app.topics.declare()
    work.index.pause(actor=ACTOR)
    work.orders.publish_many([1, 2, 3])
    for order, key in ((4, "a"), (5, "b"), (6, "b")):
        work.orders.publish(order, key=key)


def _operated() -> None:
    """Have operators act: bulk operations, a pause of a run, a login, a request with a key."""
    for name in ("bulk 1", "bulk 2"):
        tagged(work.do, name, delay="1d")
        tagged(work.do, f"slow {name}", delay="4h", priority=9)
    found = app.operations.preview("cancel", redrive.Filter(tag="bulk 1"), why="no longer wanted")
    app.operations.finish(app.operations.start(found, actor=ACTOR).id)
    app.operations.start(app.operations.preview("cancel", redrive.Filter(tag="bulk 2")), actor=ACTOR)
    app.runs.get("sleeps", "held").pause("for a check", actor=ACTOR)
    app.runs.get("asks", "answered").signal("answer", "yes", actor=ACTOR)
    app.emit("closed", "at night", keep_for="3650d")
    work.prices.pause("fresh", actor=ACTOR)
    at = app.now()
    app.store.run(counters.note_depths(now=at))
    app.store.run(sessions.begin("d" * 64, sessions.Session(ACTOR, "a" * 64), lasts=timedelta(days=3650), now=at))
    app.store.run(requests.begin(ACTOR, "key 1", "digest", now=at))


def _crashed() -> None:
    """Have a worker that dies with a job in a limited queue, and with a run that has finished a step."""
    tagged(work.do, "running", queue="limited")
    lease = timedelta(seconds=10)
    process = Process("host-1", 7, None)
    served = {"do", "sleeps"}
    options: dict[str, Any] = {"concurrency": 2, "lease_for": lease, "tasks": served, "version": redrive.__version__}
    number = app.store.run(workers.register("dead", process=process, now=app.now(), build="1", **options))
    for queue, task in (("limited", "do"), ("default", "sleeps")):
        claim = leases.claim(number, 1, lease_for=lease, queues=[queue], tasks={task}, now=app.now())
        claimed: Claimed = app.store.run(claim)
        assert len(claimed.claims) == 1, (queue, task)


def _fresh() -> None:
    """Enqueue and publish what no worker has seen yet."""
    tagged(work.do, "due")
    tagged(work.do, "behind", queue="limited")
    work.risk.options(tags=["many"]).enqueue_many([f"many {number}" for number in range(5)])
    work.orders.publish(7, key="b")
    work.payment.send("late", Created(100))
    work.payment.send("waiting", Expired(), key="by hand")


# ----------------------------------------------------------------------------------------------------------- questions


def name_of(job: JobRecord) -> str:
    """Return the name under which a job is compared: its tag, or what it was created for, or its task."""
    tags = [
        each for each in app.job(job.id).tags if not each.startswith(("batch:", "in batch", "key:", "out of order"))
    ]
    return tags[0] if tags else job.origin or job.task


def found() -> dict[str, dict[str, Any]]:
    """Return what the database of the app contains, by kinds; equal contents are equal on all stores."""
    jobs: dict[str, list[str]] = {}
    for job in app.jobs.select(redrive.Filter(oldest_first=True, limit=10_000)):
        jobs.setdefault(name_of(job), []).append(f"{job.state} ({job.hold})" if job.hold else job.state)
    contents = {
        "jobs": jobs,
        "runs": {
            f"{each.workflow}/{each.id}": _run(app.runs.get(each.workflow, each.id)) for each in app.runs.select()
        },
        "instances": {
            each.key: f"{each.state} ({each.status}), {each.moves} moves"
            for each in app.machines.machine("payment").select()
        },
        "items": {
            each.key: f"attempt {each.attempt_no}, next {each.refresh_at}, {each.disabled_reason}"
            for each in work.prices.tracked()
        },
        "schedules": {
            each.name: f"next {each.next_at}{', paused' if each.paused_at else ''}" for each in app.schedules.select()
        },
        "deliveries": {
            each.subscription.name: f"unread {each.lag.events}, failed {len(each.deliveries)}, dead {len(each.dead)}"
            for each in app.topics.select("orders")
        },
        "operations": {str(each.id): each.state for each in app.operations.select()},
        "queues": {name: _queue(name) for name in ("limited", "ordered", "paused", "rated")},
    }
    return msgspec.to_builtins(contents)


def _run(run: redrive.Run[Any]) -> dict[str, Any]:
    steps = [f"{each.name}: {each.kind} {each.outcome}" for each in run.timeline()]
    return {"state": run.state, "steps": steps, "result": run.result() if run.state == "succeeded" else None}


def _queue(name: str) -> str:
    queue = app.queue(name).settings
    rate = f"{queue.rate_count} in {queue.rate_for}, ordered {queue.ordered}"
    return f"paused by {queue.paused_by}, at most {queue.concurrency}, {rate}"


# -------------------------------------------------------------------------------------------------------- expectations

FINISHED = (
    "retrying", "delayed", "unique", "late", "snoozed", "debounced", "paused", "rated 2", "rated 3", "ordered 1",
    "ordered 2", "pay 1", "pay 2", "pay 3", "pay 4", "member 2", "follows", "slow bulk 1", "slow bulk 2", "running",
    "due", "behind", "dead",
)  # fmt: skip
"""The jobs that are executed once after the upgrade, each of which has an effect of its name."""

MOVED = ("busy", "unpaid", "late", "waiting", "failed")
"""The instances whose machine goes on, each by one or two more moves."""


def finish() -> None:
    """Do what operators and other programs do after the upgrade, so that all can end; then `UNTIL` has to pass."""
    app.queue("paused").resume(actor=ACTOR)
    work.index.resume(actor=ACTOR)
    app.runs.get("sleeps", "held").resume(actor=ACTOR)
    app.runs.get("asks", "asking").signal("answer", "yes", actor=ACTOR)
    app.emit("opened", "the door")
    (asked,) = app.jobs.select(redrive.Filter(tag="asked"))
    app.complete(f"{asked.id}.{asked.lease_id}", "an answer")
    app.operations.finish(2)
    app.jobs.redrive(redrive.Filter(tag="dead"), actor=ACTOR)
    app.topics.subscription("orders", "audit").redrive(actor=ACTOR)
    app.runs.get("undoes", "undone").job.retry(actor=ACTOR)
    app.machines.machine("payment").retry("failed", actor=ACTOR)
    work.prices.update("disabled")
    work.prices.resume("fresh", actor=ACTOR)
    app.schedules.resume("remind-off", actor=ACTOR)


UNTIL = timedelta(hours=6)
"""The time after which all has ended that can end."""


def effects() -> list[str]:
    """Return the effects that follow `finish`, each once, in the order of their names."""
    hours = [END + timedelta(hours=each) for each in range(6)]
    crons = [f"hourly {each:%d %H}:30" for each in hours]
    crons += [f"remind {name} {each:%d %H}:45" for name in ("acme", "off") for each in hours]
    runs = [f"{name} second" for name in ("crashed", "sleeping", "held", "calls/calling/2", "tried")]
    runs += [f"undone {step}" for step in ("first", "second", "last")]
    many = [f"many {number}" for number in range(5)]
    moves = ["pay busy", "expire unpaid", "create late", "expire late", "expire waiting", "pay failed"]
    events = [f"index {order}" for order in range(1, 8)] + [f"ship {order}" for order in (2, 5, 6, 7)]
    # An item is refreshed at six o'clock, and two of them before: one is tried again, the other one updated.
    items = [f"prices {key}" for key in ("disabled", "disabled", "fresh", "troubled", "troubled")]
    return sorted([*FINISHED, *crons, *runs, *many, *moves, *events, "audit 2", "audit 7", *items])


def unaided() -> list[str]:
    """Return those of `effects` that need only a worker, at any later time."""
    # One job waits for an hour behind the other one of its rate; one may only start until a time.
    jobs = set(FINISHED) - {"paused", "rated 3", "dead", "late"}
    runs = [f"{name} second" for name in ("crashed", "sleeping", "calls/calling/2", "tried")]
    many = [f"many {number}" for number in range(5)]
    moves = ["pay busy", "expire unpaid", "create late", "expire waiting"]
    return sorted([*jobs, *runs, *many, *moves, *(f"ship {order}" for order in (2, 5, 6, 7)), "audit 7"])


def _sleeper(name: str) -> dict[str, Any]:
    steps = ["act: step ok", "sleep: sleep ok", "act: step ok"]
    return {"state": "succeeded", "steps": steps, "result": [f"did {name} first", f"did {name} second"]}


def _asker(name: str) -> dict[str, Any]:
    steps = ["act: step ok", "answer: wait ok", "opened: event ok"]
    return {"state": "succeeded", "steps": steps, "result": f"did {name} first, yes, the door"}


def after() -> dict[str, dict[str, Any]]:
    """Return what `found` has to return in the end where it differs from before."""
    done, names = "succeeded", ("sleeping", "held", "crashed", "calls/calling/2")
    runs: dict[str, Any] = {f"sleeps/{name}": _sleeper(name) for name in names}
    runs |= {f"asks/{name}": _asker(name) for name in ("asking", "answered")}
    calls = ["did calling first", *runs["sleeps/calls/calling/2"]["result"]]
    runs["calls/calling"] = {"state": done, "steps": ["act: step ok", "sleeps: call ok"], "result": calls}
    tried = ["did tried first", "did tried second"]
    runs["retries/tried"] = {"state": done, "steps": ["act: step ok"] * 2, "result": tried}
    undone = [f"did undone {step}" for step in ("first", "second", "last")]
    runs["undoes/undone"] = {"state": done, "steps": ["act: step ok"] * 3, "result": undone}
    jobs = {name: [done] for name in (*FINISHED, "asked")} | {f"run:{name}": [done] for name in runs}
    jobs |= {"many": [done] * 5, "strange do": ["dead"], "bulk 2": ["cancelled"]}
    jobs |= {f"machine:payment/{name}": [done] * 2 for name in MOVED}
    jobs |= {f"topic:orders/{name}": [done] for name in ("audit#3", "ship#3", "ship#6", "ship#7")}
    jobs |= {f"refresh:prices/{key}": [*each, done] for key, each in (("fresh", [done]), ("troubled", ["dead", done]))}
    jobs["refresh:prices/disabled"] = ["dead", "dead", done, done]
    moved = {"busy": "paid", "unpaid": "expired", "late": "expired", "waiting": "expired", "failed": "paid"}
    item = "attempt 0, next 2026-01-02 06:00:00+00:00, None"
    return {
        "jobs": jobs,
        "runs": runs,
        "instances": {key: f"{state} (completed), 2 moves" for key, state in moved.items()},
        "items": dict.fromkeys(("disabled", "fresh", "troubled"), item),
        "schedules": {
            "hourly": "next 2026-01-01 10:30:00+00:00",
            "remind-acme": "next 2026-01-01 10:45:00+00:00",
            "remind-off": "next 2026-01-01 10:45:00+00:00",
        },
        "deliveries": dict.fromkeys(("audit", "index", "ship"), "unread 0, failed 0, dead 0"),
        "operations": {"2": "done"},
        "queues": {"paused": "paused by None, at most None, None in None, ordered False"},
    }
