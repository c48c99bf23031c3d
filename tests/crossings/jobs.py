"""Jobs: the factors, the tasks, and how a scenario is played."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from redrive import CatchRequest, Context, Filter, GiveUp, Job
from redrive.app.operators.queues import Queue
from redrive.errors import RedriveError
from redrive.stores.operations import queues
from tests.crossings import children
from tests.crossings.arrays import Row, Table, Void
from tests.crossings.model import JobForecast, forecast_job
from tests.crossings.world import TENANT, Killed, Process, World, world

NEIGHBOURS = 20
"""Jobs of a backlog; the slots of a worker are fewer, so that the end of one job starts another one."""

LATER = 10_100
"""Delayed jobs: counts of ready jobs once stopped at 10,000."""

JOBS = Table(
    "jobs",
    {
        "feature": ("attempt", "retry", "catch", "key", "limited", "context", "transaction"),
        "colour": ("async", "def", "process"),
        "event": (
            "none", "cancel", "retry", "redrive", "delete", "pause", "kill", "term", "deploy", "clock", "lock",
            "backlog", "delayed",
        ),
        "moment": ("queued", "working", "settling", "ended"),
        "ending": ("returns", "dies"),
        "second": ("none", "cancel", "retry", "redrive", "kill"),
        "store": ("sqlite", "postgres"),
    },
    (
        Void("a handler in a child process has no connection", {"feature": ["transaction"], "colour": ["process"]}),
        Void("no worker has the job that could end", {"event": ["kill", "term"], "moment": ["queued", "ended"]}),
        Void("no worker has the job again", {"second": ["kill"], "moment": ["working", "settling", "ended"]}),
        Void("two deaths in a row are the limit of crashes, not a crossing", {"event": ["kill"], "second": ["kill"]}),
        Void("a worker with old code is stopped first: that is `term`",
             {"event": ["deploy"], "moment": ["working", "settling"]}),
        Void("nothing is written that could meet a lock", {"event": ["lock"], "moment": ["queued", "ended"]}),
        Void("counts are read while jobs are due, and a backlog has to stand before the job",
             {"event": ["delayed", "backlog", "pause"], "moment": ["working", "settling", "ended"]}),
        Void("a job with a catch task always dies", {"feature": ["catch"], "ending": ["returns"]}),
    ),
)  # fmt: skip


class Scene:
    """The state of one scenario that its functions share, in all processes."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.world: World
        self.code: Code
        self.job: Job[Any]
        self.neighbours: list[Job[Any]] = []
        self.tries = 0
        self.running: Counter[str] = Counter()
        self.at_once = 0
        self.refused: list[str] = []
        self.lock = threading.Lock()

    def asked(self, name: str, n: int, seen: str | None) -> int:
        """Do the work of a handler in a child process, which may have seen the context of another job."""
        if seen is not None:
            self.world.ledger.leaks.append(f"{name} {n} saw {seen} in its process")
        try:
            answer: int = self.code.dhandler(name)(n)
        except Killed:
            raise AssertionError("a dead process goes on") from None
        return answer


class Code:
    """The tasks of one process."""

    def __init__(self, scene: Scene, process: Process) -> None:
        self.scene, self.process, self.ledger = scene, process, process.world.ledger
        scene.code = self
        app, feature = process.app, scene.row["feature"]

        @app.task(name="caught", retry="1 1s")
        def caught(request: CatchRequest) -> None:
            self.ledger.look("catch")
            self.ledger.call("caught")

        options: dict[str, Any] = {"retry": f"5 10m{' catch caught' if feature == 'catch' else ''}", "queue": "main"}
        colour = "a" if scene.row["colour"] == "async" else "d"

        def named(name: str) -> Any:
            if scene.row["colour"] == "process":
                return app.task(name=name, executor="process", **options)(getattr(children, name))
            make = getattr(self, f"{colour}{'transacted' if feature == 'transaction' else 'handler'}")
            return app.task(name=name, **options)(make(name))

        self.work, self.neighbour = named("work"), named("neighbour")
        # Its name comes before the others, as counts were read in the order of names.
        self.reminder = app.task(name="a_reminder", queue="main")(_nothing)
        if feature == "limited":
            app.queue("main", concurrency=1)

    def ahandler(self, name: str) -> Callable[..., Any]:
        """Return a handler that begins, reaches the moment, and does its work."""

        async def handler(n: int) -> int:
            self.begin(name, n)
            try:
                if name == "work":
                    await self.scene.world.areach(self.process, "again", "working")
                return self.finish(name, n)
            finally:
                self.end()

        return handler

    def dhandler(self, name: str) -> Callable[..., Any]:
        """Return one that does the same in a thread."""

        def handler(n: int) -> int:
            self.begin(name, n)
            try:
                if name == "work":
                    self.scene.world.reach(self.process, "again", "working")
                return self.finish(name, n)
            finally:
                self.end()

        return handler

    def atransacted(self, name: str) -> Callable[..., Any]:
        """Return a handler that commits an effect with the end of its job."""
        handler = self.ahandler(name)

        async def transacted(n: int, ctx: Context) -> None:
            await handler(n)
            async with ctx.transaction() as connection:
                answer = connection.execute(self.insert(n))
                if hasattr(answer, "__await__"):
                    await answer

        return transacted

    def dtransacted(self, name: str) -> Callable[..., Any]:
        """Return one that does the same in a thread."""
        handler = self.dhandler(name)

        def transacted(n: int, ctx: Context) -> None:
            handler(n)
            with ctx.transaction() as connection:
                connection.execute(self.insert(n))

        return transacted

    def insert(self, n: int) -> str:
        """Return the statement of an effect."""
        return f"INSERT INTO {self.scene.world.table} VALUES ('{n}')"  # noqa: S608 - made by the test

    def begin(self, name: str, n: int) -> None:
        """Note a call, its context, and how many run at once."""
        self.ledger.look(f"{name} {n}")
        TENANT.set(f"tenant {n}")
        with self.scene.lock:
            self.scene.running["now"] += 1
            self.scene.at_once = max(self.scene.at_once, self.scene.running["now"])

    def end(self) -> None:
        """Note the end of a call."""
        with self.scene.lock:
            self.scene.running["now"] -= 1

    def finish(self, name: str, n: int) -> int:
        """Fail as the row says, or note that the work is done."""
        if self.process.dead:
            raise AssertionError("a dead process goes on")
        if name == "work":
            self.scene.tries += 1
            if self.scene.row["feature"] == "retry" and self.scene.tries <= 2:
                raise OSError("not yet")
            if self.scene.row["ending"] == "dies" and not self.scene.world.healthy:
                raise GiveUp("for good")
        self.ledger.call(f"{name} {n}")
        return n


def _nothing(n: int) -> None:
    """Do nothing."""


# ------------------------------------------------------------------------------------------------------------ the play


def play(row: Row, url: str) -> None:
    """Play the scenario of a row on an empty database, and compare its end with the forecast."""
    scene = Scene(row)
    answers = children.answering(scene.asked) if row["colour"] == "process" else contextlib.nullcontext()
    with answers, world(url, lambda process, _: Code(scene, process), concurrency=3) as stage:
        scene.world = stage
        if "transaction" in row.values():
            stage.create_table()
        code = stage.operator.parts
        if row["event"] == "pause":
            Queue(stage.operator.app, "main").pause()
        if row["event"] == "backlog":
            scene.neighbours = list(code.neighbour.enqueue_many(range(1, NEIGHBOURS)))
        if row["event"] == "delayed":
            code.reminder.options(delay="300d").enqueue_many(range(LATER))
        options = {"key": "one"} if row["feature"] == "key" else {}
        scene.job = code.work.options(**options).enqueue(0)
        if row["feature"] == "key":
            scene.neighbours.append(code.neighbour.options(key="one").enqueue(100))
        _compare_counts(scene)
        _play(scene)
        _compare(scene, forecast_job(row))


def _play(scene: Scene) -> None:
    row, stage = scene.row, scene.world
    event, moment = row["event"], row["moment"]
    if moment == "queued":
        _happen(scene, event, None)
        if row["second"] == "kill":
            stage.at("again", Process.kill)
        else:
            _happen(scene, row["second"], None)
    elif moment == "working":
        stage.at("working", lambda process: _happen(scene, event, process))
    elif moment == "settling":
        stage.at(
            "working",
            lambda process: stage.hooks.update(settle=lambda: _happen(scene, event, process)),
        )
    steps: list[Callable[[], object]] = []
    if event == "pause":
        steps.append(lambda: Queue(stage.operator.app, "main").resume())
    steps += [lambda: stage.clock.advance("1h")] * 3
    steps.append(lambda: setattr(stage, "healthy", True))
    if moment == "ended":
        steps.append(lambda: _happen(scene, event, None))
    if moment != "queued":
        steps.append(lambda: _happen(scene, row["second"], None))
    stage.work(*steps, *[lambda: stage.clock.advance("1h")] * 3)


def _happen(scene: Scene, event: str, process: Process | None) -> None:
    app = scene.world.operator.app
    only = Filter(ids=(scene.job.id,))
    actions: dict[str, Callable[[], object]] = {
        "cancel": lambda: scene.job.cancel("by the test"),
        "retry": scene.job.retry,
        "redrive": lambda: app.jobs.redrive(only),
        "delete": lambda: app.jobs.delete(only),
        "clock": lambda: scene.world.step_back("30m"),
        "deploy": scene.world.deploy,
        "lock": scene.world.lock_jobs,
    }
    if event in {"kill", "term"}:
        assert process is not None
        (process.kill if event == "kill" else process.term)()
    elif event in actions:
        try:
            actions[event]()
        except RedriveError as error:
            scene.refused.append(str(error))


# ------------------------------------------------------------------------------------------------------------ the laws


def _compare_counts(scene: Scene) -> None:
    """Compare the due jobs that operators see with those that are due."""
    app = scene.world.operator.app
    assert 1 + len(scene.neighbours) == app.jobs.stats().due
    depths = app.store.run(queues.depths(now=app.now())).queues
    assert 1 + len(scene.neighbours) == sum(each.jobs for each in depths if each.standing is queues.DepthState.DUE)


def _compare(scene: Scene, forecast: JobForecast) -> None:
    ledger, app = scene.world.ledger, scene.world.operator.app
    found = app.jobs.select(Filter(ids=(scene.job.id,)))
    assert forecast.may_be_gone or found, "the job is gone"
    state = str(found[0].state) if found else "gone"
    assert state in forecast.states | ({"gone"} if forecast.may_be_gone else set())
    assert ["succeeded"] * len(scene.neighbours) == [str(each.refresh().state) for each in scene.neighbours]
    assert [] == ledger.leaks
    done = ledger.calls["work 0"]
    assert (state == "succeeded") <= done <= forecast.most, f"done {done} times"
    if scene.row["feature"] == "limited":
        assert 1 == max(scene.at_once, 1)
    if scene.row["feature"] == "transaction":
        expected = [["0"], []] if state == "gone" else [["0"] if state == "succeeded" else []]
        assert [each for each in scene.world.rows() if each == "0"] in expected
    if scene.row["feature"] == "catch" and forecast.states == {"dead"} and not forecast.may_be_gone:
        assert 1 == ledger.calls["caught"]
    assert () == app.database.verify()
