"""The plan of a simulation: actions of clients and operators, faults, and their times. A seed makes a plan.

Each profile lists the faults and the kinds of handlers that a seed may draw. `DEFAULT` holds those that the product
survives. Each of the other profiles holds kinds that the present code does not survive; the comment above it
names the defect. After a repair its line in `test_profiles.py` is deleted, and its kinds move to `DEFAULT`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

__all__ = [
    "AT_MOST_ONCE",
    "BLIND",
    "DEFAULT",
    "DIRECT",
    "HEARTBEAT",
    "LEASE",
    "LOST",
    "POOLED",
    "PROFILES",
    "Plan",
    "Profile",
    "Step",
    "make",
]

HEARTBEAT, LEASE = 1.0, 3.0
"""Seconds. Short, so that a short simulation sees many leases end."""

AT_MOST_ONCE = "once"
"""The task that is declared ``idempotent=False``."""

DIRECT, POOLED, BLIND = "direct", "pooled", "blind"
"""Sessions that name their server when they begin; sessions of a pool, which the heartbeat asks; and neither."""

LOST = 60
"""The most commits that a failover loses."""

ACTIVE = 4.0
"""Seconds of virtual time in which clients, operators and faults are active; then the fleet has to come to rest."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan.

    Attributes:
        at: seconds of virtual time.
        kind: the kind of step: see `fleet.Fleet`, which has a method for each kind.
        target: the process, queue or task that the step affects.
        how: the kind of handler, or the name of the store operation.
        seconds: duration of the fault.
        number: number of the job, event or run; number of lost messages, or commits; number of statements until a
            process is killed."""

    at: float
    kind: str
    target: str = ""
    how: str = ""
    seconds: float = 0.0
    number: int = 0

    def __str__(self) -> str:
        """Write the step as one line."""
        words = [f"{self.at:7.3f} s  {self.kind}", self.target, self.how]
        words += [f"for {self.seconds:g} s"] * bool(self.seconds) + [f"#{self.number}"] * bool(self.number)
        return " ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a whole simulation.

    Attributes:
        seed: the seed of the plan, which also drives the delays and the interleaving.
        store: ``memory`` (one database behind a network, with one clock) or ``file`` (SQLite in a file, where each
            process has connections and a clock of its own).
        workers: worker processes at the start.
        slots: attempts that each runs at once.
        steps: the steps, in the order of time.
        profile: the name of its profile.
        sessions: how a process learns of another server; see `Profile`."""

    seed: int
    store: str
    workers: int
    slots: int
    steps: tuple[Step, ...]
    profile: str = "default"
    sessions: str = DIRECT

    def without(self, dropped: set[int]) -> Plan:
        """Leave out the steps at these indexes."""
        return replace(self, steps=tuple(each for i, each in enumerate(self.steps) if i not in dropped))

    def __str__(self) -> str:
        """Write the plan, a line for each step."""
        head = (
            f"seed {self.seed}, profile {self.profile}: {self.workers} workers with {self.slots} slots on "
            f"{self.store}, {self.sessions} sessions"
        )
        return "\n".join([head, *(f"  {each}" for each in self.steps)])


@dataclass(frozen=True, slots=True)
class Profile:
    """The faults, handlers and sizes that a seed may draw.

    Attributes:
        faults: kinds of faults.
        handlers: kinds of handlers of tasks that may run again.
        stores: kinds of stores.
        strict: invariants that hold in this profile only, because no other fault can break them.
        shutdown: seconds that a worker lets its handlers continue after a stop.
        tasks: names of tasks.
        jobs: least and greatest number of enqueued jobs.
        workers: least and greatest number of worker processes.
        slots: least and greatest number of attempts at once in each worker.
        count: least and greatest number of faults.
        operators: least and greatest number of actions of operators; None for no actions.
        kinds: what clients do: they enqueue jobs, publish events and start runs.
        sessions: how the processes of a seed may learn that another server has taken over.
        behind: seconds by which processes differ, at most, in when they reach the new server.
        lost: least and greatest number of commits that a failover loses, of which one pair is drawn.
        slow: names of the operations that may be slow.
        when: seconds of virtual time between which faults begin."""

    faults: tuple[str, ...]
    handlers: tuple[str, ...] = ("ok", "ok", "ok", "fail", "die", "long", "block", "snooze")
    stores: tuple[str, ...] = ("memory", "memory", "memory", "memory", "file")
    strict: frozenset[str] = frozenset()
    shutdown: float = 12.0
    tasks: tuple[str, ...] = ("plain", "once", "narrow", "threaded", "booked", "keyed", "caught")
    jobs: tuple[int, int] = (3, 8)
    workers: tuple[int, int] = (1, 3)
    slots: tuple[int, int] = (1, 4)
    count: tuple[int, int] = (1, 5)
    operators: tuple[int, int] | None = None
    kinds: tuple[str, ...] = ("enqueue",)
    sessions: tuple[str, ...] = (DIRECT,)
    behind: float = 0.0
    lost: tuple[tuple[int, int], ...] = ((0, 3), (0, 15), (0, LOST))
    slow: tuple[str, ...] = ("claim", "settle", "sweep", "beat", "look", "workers", "fire")
    when: tuple[float, float] = (0.2, ACTIVE)

    @property
    def flows(self) -> bool:
        """True if the fleet also has a topic with subscriptions, runs and a refresh."""
        return self.kinds != ("enqueue",)


_SAFE = (
    "crash",
    "crash",
    "freeze",
    "stall",
    "slow",
    "lost_reply",
    "lost_request",
    "outage",
    "step",
    "restart",
    "starve",
)

DEFAULT = Profile(_SAFE, operators=(0, 3))

_SECONDS = {
    "freeze": (0.2, 5.0),
    "stall": (0.2, 5.0),
    "slow": (0.5, 5.0),
    "outage": (0.1, 5.0),
    "long_outage": (LEASE + 1, 3 * LEASE),
    "step": (-0.5, 0.5),  # too small to end a lease
    "silence": (2 * LEASE, 4 * LEASE),
    "starve": (0.05, 2.0),  # another program holds the lock of the database
    "failover": (0.0, 3.0),  # until the new server answers
}
"""How long each kind of fault lasts, at least and at most."""

_OF_WORKERS = ("crash", "freeze", "slow", "step", "jump", "restart", "mute", "silence")
_OF_ALL = ("stall", "lost_reply", "lost_request")

_ALL = ("enqueue", "publish", "start")

_FAILING_OVER = ("ok", "ok", "ok", "fail", "die", "long")

PROFILES = {
    "default": DEFAULT,
    # Workers stop for longer than their leases, or die while messages of theirs are under way: late writes are stale.
    "stale": Profile(
        ("crash", "freeze", "stall"),
        handlers=("ok", "long"),
        stores=("memory",),
        tasks=("plain", "threaded"),
        workers=(2, 3),
        count=(3, 6),
    ),
    # One heartbeat is never answered: the next one has to be sent on another connection, before the lease ends.
    "heartbeat": Profile(
        ("mute",),
        handlers=("ok", "long"),
        stores=("memory",),
        strict=frozenset({"false_loss", "overlap", "stop_hangs"}),
        tasks=("plain",),
        workers=(2, 2),
        count=(1, 2),
    ),
    # No heartbeat is answered for longer than the lease: the worker has to end its attempts before others start them.
    "silence": Profile(
        ("silence",),
        handlers=("ok", "longer"),
        stores=("memory",),
        strict=frozenset({"false_loss", "overlap", "stop_hangs"}),
        tasks=("plain",),
        workers=(2, 2),
        count=(1, 2),
    ),
    # On SQLite, more handlers want ctx.transaction() at once than the event loop has threads.
    "lending": Profile(
        (),
        stores=("file",),
        strict=frozenset({"false_loss", "slow_transaction"}),
        handlers=("ok",),
        tasks=("booked",),
        jobs=(14, 20),
        workers=(1, 1),
        slots=(8, 12),
        count=(0, 0),
    ),
    # KeyboardInterrupt of a handler ends the worker, which gives its jobs back for nothing; GeneratorExit leaks the
    # attempt: it runs for ever.
    "exceptions": Profile(
        ("crash",), handlers=("ok", "interrupt", "exit", "close", "base"), tasks=("plain", "threaded")
    ),
    # A handler that cancels its own task is given back, and runs again at once, for ever.
    "cancellation": Profile(("crash",), handlers=("ok", "self_cancel"), tasks=("plain", "once")),
    # The database is away for longer than the lease: workers that never stopped lose no jobs.
    "outage": Profile(
        ("long_outage",),
        handlers=("long",),
        stores=("memory",),
        strict=frozenset({"false_loss"}),
        tasks=("plain", "once"),
        workers=(2, 3),
        count=(1, 1),
    ),
    # On SQLite the clock of the machine is the clock of the database: it is set by seconds, or by an hour.
    "clocks": Profile(
        ("jump",),
        handlers=("ok", "long"),
        stores=("file",),
        strict=frozenset({"false_loss", "early_cron"}),
        tasks=("plain",),
        workers=(2, 3),
        count=(1, 2),
    ),
    # Handlers in a queue with a limit take a second to stop when their jobs are cancelled.
    "limits": Profile(
        ("crash", "freeze", "lost_reply"),
        handlers=("cling",),
        tasks=("narrow",),
        jobs=(6, 10),
        workers=(2, 3),
        count=(0, 1),
        operators=(3, 5),
    ),
    # Another server takes over that lacks the last commits: what it has is not doubled, skipped or held for ever.
    "failover": Profile(
        ("failover",),
        handlers=_FAILING_OVER,
        stores=("memory",),
        strict=frozenset({"false_loss", "write_lost"}),
        workers=(2, 3),
        count=(1, 2),
        jobs=(6, 12),
        kinds=_ALL,
        behind=0.95 * LEASE,
    ),
    # The same behind a pool, so that a worker learns of it from its heartbeat, or where it can never learn of it.
    "unseen failover": Profile(
        ("failover",),
        handlers=_FAILING_OVER,
        stores=("memory",),
        strict=frozenset({"false_loss"}),
        workers=(2, 3),
        count=(1, 2),
        jobs=(6, 12),
        kinds=_ALL,
        sessions=(POOLED, BLIND),
        behind=1.5 * HEARTBEAT,
    ),
    # Events alone, many of them: what a feeder has delivered, and what handlers have written for it, is lost.
    "events": Profile(
        ("failover",),
        handlers=("ok", "ok", "ok", "fail"),
        stores=("memory",),
        # The one queue of the simulated server starves heartbeats under so many transactions.
        strict=frozenset({"write_lost"}),
        workers=(2, 3),
        count=(1, 2),
        jobs=(12, 20),
        kinds=("publish",),
        behind=0.95 * LEASE,
    ),
    # The same where writes may be slow, and the new server is not seen.
    "unseen events": Profile(
        ("failover", "slow"),
        handlers=("ok", "ok", "ok", "fail"),
        stores=("memory",),
        workers=(2, 3),
        count=(2, 4),
        jobs=(12, 20),
        kinds=("publish",),
        sessions=(POOLED, BLIND),
        behind=1.5 * HEARTBEAT,
        slow=("settle", "turn"),
    ),
    "unseen runs": Profile(
        ("failover", "slow"),
        handlers=("ok", "ok", "ok", "fail"),
        stores=("memory",),
        strict=frozenset({"false_loss"}),
        workers=(2, 3),
        count=(2, 4),
        jobs=(8, 14),
        kinds=("start",),
        sessions=(POOLED, BLIND),
        behind=1.5 * HEARTBEAT,
        slow=("settle", "call"),
    ),
    # Runs with many rows one after the other, and slow calls of child runs: the row before one is lost in between.
    "unseen calls": Profile(
        ("failover", "slow", "slow"),
        handlers=("ok",),
        stores=("memory",),
        workers=(2, 3),
        slots=(3, 4),
        count=(4, 7),
        jobs=(6, 10),
        kinds=("tour",),
        sessions=(BLIND,),
        behind=0.5 * HEARTBEAT,
        lost=((1, 8), (4, 20)),
        slow=("call",),
    ),
    "unseen ends": Profile(
        ("failover", "slow"),
        handlers=("ok",),
        stores=("memory",),
        strict=frozenset({"false_loss"}),
        tasks=("booked",),
        workers=(2, 3),
        count=(2, 4),
        jobs=(12, 20),
        sessions=(POOLED, BLIND),
        behind=1.5 * HEARTBEAT,
        slow=("settle",),
    ),
    # Deliveries that ended in a transaction of their handler are lost before their feeder has written its turn.
    "unseen deliveries": Profile(
        ("failover", "slow", "slow"),
        handlers=("ok",),
        stores=("memory",),
        workers=(2, 3),
        count=(4, 6),
        jobs=(14, 20),
        kinds=("publish",),
        sessions=(BLIND,),
        behind=0.5 * HEARTBEAT,
        lost=((1, 4), (1, 10)),
        slow=("turn",),
    ),
    # No worker is registered any more, and none sees that at once: their ids are given again to processes that start.
    "unseen ids": Profile(
        ("failover", "restart"),
        handlers=("ok", "long"),
        stores=("memory",),
        strict=frozenset({"false_loss"}),
        tasks=("once", "plain"),
        workers=(3, 4),
        slots=(1, 2),
        count=(2, 5),
        jobs=(10, 16),
        sessions=(BLIND,),
        behind=1.5 * HEARTBEAT,
        lost=((LOST, LOST),),
    ),
    # The same soon after the start, so that one registers again while another one has not seen that its row is gone.
    "unseen start": Profile(
        ("failover",),
        handlers=("ok", "long"),
        stores=("memory",),
        tasks=("once",),
        workers=(3, 4),
        slots=(1, 2),
        count=(1, 2),
        jobs=(14, 20),
        sessions=(BLIND,),
        behind=1.5 * HEARTBEAT,
        lost=((LOST, LOST),),
        when=(0.1, 1.5),
    ),
    # A shutdown that cuts off the handler of an idempotent=False task lets it run again.
    "shutdown": Profile(("restart",), handlers=("ok", "long"), tasks=("once",), shutdown=0.2),
}


def make(seed: int, profile: str = "default") -> Plan:
    """Make the plan of a seed.

    Args:
        seed: any number.
        profile: a key of `PROFILES`.

    Returns:
        The plan.
    """
    rng = Random(f"plan {profile} {seed}")
    allowed = PROFILES[profile]
    store = rng.choice(allowed.stores)
    least, most = allowed.workers
    workers, slots = rng.choice([least, *range(least, most + 1)]), rng.randint(*allowed.slots)
    steps = [_enqueue(rng, allowed, number) for number in range(1, rng.randint(*allowed.jobs) + 1)]
    steps += [_operate(rng, len(steps)) for _ in range(rng.randint(*allowed.operators) if allowed.operators else 0)]
    if allowed.faults:
        steps += [_fault(rng, allowed, rng.choice(allowed.faults), workers) for _ in range(rng.randint(*allowed.count))]
    if allowed.flows:
        steps.append(Step(0.0, "track"))
    sessions = rng.choice(allowed.sessions)
    return Plan(seed, store, workers, slots, tuple(sorted(steps, key=lambda step: step.at)), profile, sessions)


def _enqueue(rng: Random, allowed: Profile, number: int) -> Step:
    task = rng.choice(allowed.tasks)
    how = rng.choice(allowed.handlers)
    seconds = round(rng.uniform(3.2, 4.5), 2) if how == "long" else round(rng.expovariate(4), 3)
    if how == "cling":
        seconds = round(rng.uniform(0.5, 2), 2)
    if how == "block":
        seconds = round(rng.uniform(0.5, 4), 2)
    if how == "longer":
        seconds = round(rng.uniform(2 * LEASE, 3 * LEASE), 2)
    if task == AT_MOST_ONCE and how == "snooze":  # it asks to be called again
        how = "ok"
    if task == "booked":
        how, seconds = rng.choice(["ok", "ok", "fail"]), min(seconds, 0.2)
    start = 0.0 if allowed is PROFILES.get("lending") else round(rng.uniform(0, ACTIVE * 0.7), 3)
    kind = rng.choice(allowed.kinds) if allowed.flows else "enqueue"
    return Step(start, kind, task if kind == "enqueue" else "", how, seconds, number)


def _operate(rng: Random, jobs: int) -> Step:
    kind = rng.choice(["cancel", "pause", "redrive"])
    at = round(rng.uniform(0.5, ACTIVE), 3)
    if kind == "pause":
        return Step(at, kind, rng.choice(["default", "narrow"]), seconds=round(rng.uniform(0.5, 4), 2))
    return Step(at, kind, number=rng.randint(1, jobs))


def _fault(rng: Random, allowed: Profile, kind: str, workers: int) -> Step:
    least, most = _SECONDS.get(kind, (0.0, 0.0))
    step = Step(round(rng.uniform(*allowed.when), 3), kind, seconds=round(rng.uniform(least, most), 2))
    worker = f"w{rng.randrange(workers)}"
    if kind in _OF_WORKERS:
        step = replace(step, target=worker)
    elif kind in _OF_ALL:
        step = replace(step, target=rng.choice([worker, worker, "client"]))
    if kind == "crash":
        step = replace(step, number=rng.randint(1, 40))
    elif kind in ("lost_reply", "lost_request"):
        step = replace(step, number=rng.randint(1, 3))
    elif kind == "slow":
        step = replace(step, how=rng.choice(allowed.slow))
    elif kind == "failover":
        step = replace(step, number=rng.randint(*rng.choice(allowed.lost)))
    elif kind == "jump":
        step = replace(step, seconds=rng.choice([20.0, -20.0, 3600.0, -3600.0]))
    return step
