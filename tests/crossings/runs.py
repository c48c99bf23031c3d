"""Runs of workflows: the factors, the code that runs, and how a scenario is played."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import redrive
from redrive import Filter, Flow, GiveUp, SyncFlow
from redrive.app.flows.run import Run
from redrive.errors import RedriveError
from tests.crossings.arrays import LONG, Row, Table, Void
from tests.crossings.model import AGAIN, CANCELS, ENDS, UNFINISHED, RunForecast, forecast_run, live_effects
from tests.crossings.world import TENANT, Flag, Process, World, world

NEIGHBOURS = 30
"""Other jobs, of a backlog or for later."""

ALONE = ("sleep", "signal", "first", "transaction", "set")
"""Features with no step but the first one, at which the moments are those of that."""

RESTING = ("queued", "waiting", "ended")
"""The moments at which no worker has the run."""

INSIDE = ("working", "recording", "parking", "waking", "shipping", "undoing")
"""The moments at which a worker has it."""

RUNS = Table(
    "runs",
    {
        "feature": (
            "step", "retry", "undo", "sleep", "signal", "gather", "drop", "first", "child", "transaction", "set",
            "named",
        ),
        "colour": ("async", "def"),
        "event": (
            "none", *CANCELS, "pause", "resume", "fork", *AGAIN, "restart", "delete", "archive", "kill", "kills",
            "kill_each", "term", "deploy", "clock", "lock", "backlog", "delayed",
        ),
        "moment": ("queued", "working", "recording", "parking", "waiting", "waking", "shipping", "undoing", "ended"),
        "ending": tuple(ENDS),
        "second": ("none", "cancel", "resume", "fork", "retry", "redrive", "kill"),
        "store": ("sqlite", "postgres"),
    },
    (
        Void("a call of a `def` body is made at once", {"ending": ["unawaited"], "colour": ["def"]}),
        Void("a `def` body has no named calls", {"feature": ["named"], "colour": ["def"]}),
        Void("nothing is undone after a success", {"moment": ["undoing"], "ending": ["returns"]}),
        Void("no worker has the run that could end", {"event": ["kill", "term"], "moment": RESTING}),
        Void("three deaths of a step are the ending `poison`: these are deaths in undos",
             {"event": ["kills", "kill_each"], "moment": [*RESTING, *(each for each in INSIDE if each != "undoing")]}),
        Void("a second cancellation during the undos, which a worker may begin, leaves effects: tests of ends of runs",
             {"event": ["cancel_twice"], "moment": INSIDE}),
        Void("the same, where undos fail once and wait", {"feature": ["undo"], "event": CANCELS, "second": ["cancel"]}),
        Void("a worker with old code is stopped before another one starts: that is `term`",
             {"event": ["deploy"], "moment": INSIDE}),
        Void("a second resume would hide that the first one was lost", {"event": ["resume"], "second": ["resume"]}),
        Void("the body restarts itself at one place", {"event": ["restart"],
             "moment": ["queued", "working", "recording", "parking", "waking", "shipping", "undoing", "ended"]}),
        Void("a cancelled run has taken its steps back before it could wake, so that nothing is written that is forked",
             {"event": ["fork"], "moment": ["waking"], "second": ["cancel"]}),
        Void("a run does not come to its last step before its deadline",
             {"ending": ["deadline"], "moment": ["shipping"]}),
        Void("the first try fails, which is written with the end of its attempt: that is `parking`",
             {"feature": ["retry"], "moment": ["recording"]}),
        Void("nothing is written that could meet a lock", {"event": ["lock"], "moment": RESTING}),
        Void("SQLite locks the whole file, so that no row of a run is left out",
             {"event": ["lock"], "moment": ["recording", "parking", "waking"], "store": ["sqlite"]}),
        Void("a failed try, a time or a child is written again after the lock, so that it makes no difference",
             {"event": ["lock"], "moment": ["parking"], "feature": ["retry", "sleep", "drop", "child", "set"]}),
        Void("one more death of its worker would be the third, which is an ending of its own",
             {"event": ["kill"], "ending": ["poison"]}),
        Void("the same for the second event", {"second": ["kill"], "ending": ["poison"]}),
        Void("a run that has ended has no worker", {"second": ["kill"], "moment": ["shipping", "undoing", "ended"]}),
        Void("two deaths of one attempt are the ending `poison`", {"event": ["kill"], "second": ["kill"]}),
    ),
    triples=True,
)  # fmt: skip


class Scene:
    """The state of one scenario that its functions share, in all processes."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.world: World
        self.run: Run[Any]
        self.received: dict[str, list[int]] = {}
        self.sent: list[int] = []
        self.forks: list[tuple[str, bool]] = []
        self.flaky: Counter[str] = Counter()
        self.failed = Flag()
        self.refused: list[str] = []
        self.archived: list[bytes] = []
        self.restarts = row["event"] == "restart"

    @property
    def forked(self) -> list[tuple[Run[Any], bool]]:
        """The forks, and whether each has copied steps."""
        return [(self.world.operator.app.runs.get("course", id), copied) for id, copied in self.forks]

    @property
    def feature(self) -> str:
        """The feature under test."""
        return self.row["feature"]


# ------------------------------------------------------------------------------------------------------------ the code


class Code:
    """The workflows of one process."""

    def __init__(self, scene: Scene, process: Process) -> None:
        self.scene, self.process, self.ledger = scene, process, process.world.ledger
        self.is_async = scene.row["colour"] == "async"
        app, deadline = process.app, "10d" if scene.row["ending"] == "deadline" else None
        options: dict[str, Any] = {"name": "course", "deadline": deadline, "timeout": "1h"}
        versions = [app.workflow(version=n, **options)(self.body()) for n in range(1, process.version + 1)]
        self.workflow = versions[-1]
        self.kid = app.workflow(name="kid")(self.body(self.kid_script))

        @app.task(name="neighbour")
        async def neighbour(n: int) -> None:
            self.ledger.look("neighbour")
            TENANT.set(f"tenant {n}")
            await asyncio.sleep(0)

        self.neighbour = neighbour

    def body(self, script: Callable[..., Generator[Any, Any, Any]] | None = None) -> Callable[..., Any]:
        """Return a script as the body of a workflow in the colour of the scenario."""
        play = script or self.script

        async def course(flow: Flow, n: int) -> str:
            return await aplay(play(flow, n))

        def dcourse(flow: SyncFlow, n: int) -> str:
            return splay(play(flow, n))

        return course if self.is_async else dcourse

    # A script yields functions that make the calls of a flow, and receives their results.
    def script(self, flow: Any, n: int) -> Generator[Any, Any, Any]:
        """Book, use the feature, rest, ship, and end."""
        scene, ending = self.scene, self.scene.row["ending"]
        self.ledger.look("body")
        first = n == 0
        token = yield lambda: flow.step(
            self.step("room", *(["working"] if scene.feature in ALONE else [])), undo=self.undo, retry="5 10m"
        )
        flow.set("stage", "booked")
        yield from getattr(self, f"use_{scene.feature}")(flow)
        flow.set("stage", "used")
        if scene.restarts and first:
            flow.restart(1)
        yield lambda: flow.wait_for("go")
        flow.set("stage", "going")
        yield lambda: flow.step(self.ship(token), 1)
        flow.set("stage", "shipped")
        if scene.world.healthy:
            return "done"
        if ending == "raises":
            raise ValueError("the body fails")
        if ending == "cancels":
            raise redrive.Cancel("by itself")
        if ending == "wrong_type":
            return 7
        if ending == "unawaited":
            flow.sleep("1h")
        return "x" * 1_200_000 if ending == "too_large" else "done"

    def kid_script(self, flow: Any, n: int) -> Generator[Any, Any, Any]:
        """Book in a child run, and wait."""
        yield lambda: flow.step(self.step("kid", "working"), undo=self.undo)
        yield lambda: flow.sleep("1h")
        return "kid"

    # ---------------------------------------------------------------- features

    def use_retry(self, flow: Any) -> Generator[Any, Any, Any]:
        """A step that fails twice."""
        yield lambda: flow.step(self.step("extra", "working", fails=2), undo=self.undo, retry="5 10m")

    def use_step(self, flow: Any) -> Generator[Any, Any, Any]:
        """A step that succeeds."""
        yield lambda: flow.step(self.step("extra", "working"), undo=self.undo)

    def use_undo(self, flow: Any) -> Generator[Any, Any, Any]:
        """Two steps with undos that fail once."""
        for name in ("extra", "other"):
            yield lambda name=name: flow.step(self.step(name, "working"), undo=self.undo, retry="5 10m")

    def use_sleep(self, flow: Any) -> Generator[Any, Any, Any]:
        """A wait."""
        yield lambda: flow.sleep("1h")

    def use_signal(self, flow: Any) -> Generator[Any, Any, Any]:
        """Two signals of one name."""
        got = self.scene.received[flow.id] = []
        for _ in range(2):
            got.append((yield lambda: flow.wait_for("s", int)))  # noqa: PERF401 - a script yields its calls

    def use_first(self, flow: Any) -> Generator[Any, Any, Any]:
        """Two of four signals, by two branches each."""
        got = self.scene.received[flow.id] = []
        for _ in range(2):
            _, value = yield lambda: flow.first(
                self.branch(lambda: flow.wait_for("s", int)), self.branch(lambda: flow.wait_for("t", int))
            )
            got.append(value)

    def use_gather(self, flow: Any) -> Generator[Any, Any, Any]:
        """Two steps at once."""
        yield lambda: flow.gather(
            *(self.branch(lambda name=name: flow.step(self.step(name, "working"), undo=self.undo))
              for name in ("extra", "other"))
        )  # fmt: skip

    def use_named(self, flow: Any) -> Generator[Any, Any, Any]:
        """Two named steps at once, in tasks of the body."""

        async def both() -> None:
            calls = [flow.named(name).step(self.step(name, "working"), undo=self.undo) for name in ("extra", "other")]
            await asyncio.gather(*calls)

        yield both

    def use_drop(self, flow: Any) -> Generator[Any, Any, Any]:
        """A branch with a step in flight that is dropped because another one fails."""
        try:
            yield lambda: flow.gather(
                self.branch(lambda: flow.step(self.late("extra"), undo=self.undo)),
                self.branch(lambda: flow.step(self.fails())),
            )
        except GiveUp:
            return

    def use_child(self, flow: Any) -> Generator[Any, Any, Any]:
        """A child run."""
        yield lambda: flow.call(self.kid, 0)

    def use_transaction(self, flow: Any) -> Generator[Any, Any, Any]:
        """A step that commits with its effect."""
        yield lambda: flow.transaction(self.insert(flow.id))

    def use_set(self, flow: Any) -> Generator[Any, Any, Any]:
        """A value between two steps."""
        flow.set("middle", 1)
        yield lambda: flow.sleep("1m")

    def branch(self, call: Callable[[], Any]) -> Any:
        """Return a call as a branch of its colour."""
        return call() if self.is_async else call

    # ---------------------------------------------------------------- functions of steps

    def step(self, name: str, *moments: str, fails: int = 0) -> Callable[..., Any]:
        """Return the function of a step that makes an effect, and returns its token."""

        def make(_: int) -> int:
            if self.process.dead:
                raise AssertionError("a dead process goes on")
            self.ledger.look(name)
            self.scene.flaky[name] += 1
            if self.scene.flaky[name] <= fails:
                raise OSError("not yet")
            return self.ledger.make(name)

        return self.coloured(name, moments, make)

    @property
    def undo(self) -> Callable[..., Any]:
        """The function that takes an effect back; it fails once if undos are the feature."""

        def unmake(token: int) -> None:
            self.ledger.look("undo")
            if self.scene.feature == "undo":
                self.scene.flaky[f"undo {token}"] += 1
                if self.scene.flaky[f"undo {token}"] == 1:
                    raise OSError("not yet")
            self.ledger.undo(token)
            if self.scene.row["event"] == "kill_each":
                _arm_kills(self.scene.world, 2)

        return self.coloured("unmake", ("undoing",), unmake)

    def ship(self, token: int) -> Callable[..., Any]:
        """Return the function of the last step, which uses the first effect."""

        def deliver(_: int) -> str:
            if self.scene.row["ending"] == "gives_up" and not self.scene.world.healthy:
                raise GiveUp("no carrier")
            self.ledger.use(token)
            self.ledger.call("ship")
            return "parcel"

        return self.coloured("ship", ("shipping", "poison"), deliver)

    def fails(self) -> Callable[..., Any]:
        """Return the function of a step that fails when the other branch works."""

        def fail(_: int) -> None:
            self.scene.failed.set()
            raise GiveUp("full")

        return self.coloured("fail", (), fail)

    def late(self, name: str) -> Callable[..., Any]:
        """Return a ``def`` function that ends after the other branch has failed."""

        def late() -> int:
            self.scene.world.reach(self.process, "working")
            self.scene.failed.wait(10)
            threading.Event().wait(0.02)
            if self.process.dead:
                raise redrive.Cancel("a dead process goes on")
            return self.ledger.make(name)

        return late

    # The id of a fork is another one, so it is no argument of the step that a fork copies.
    def insert(self, id: str) -> Callable[..., Any]:
        """Return a function that writes a row with a connection."""
        table = self.scene.world.table

        async def insert(connection: Any) -> None:
            answer = connection.execute(f"INSERT INTO {table} VALUES ('{id}')")  # noqa: S608 - made by the test
            if hasattr(answer, "__await__"):
                await answer

        def dinsert(connection: Any) -> None:
            connection.execute(f"INSERT INTO {table} VALUES ('{id}')")  # noqa: S608 - made by the test

        dinsert.__name__ = "insert"
        return insert if self.is_async else dinsert

    def coloured(self, name: str, moments: tuple[str, ...], work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the scenario's colour that reaches moments and then does its work."""

        async def function(value: int = 0) -> Any:
            await self.scene.world.areach(self.process, *moments)
            return work(value)

        def dfunction(value: int = 0) -> Any:
            self.scene.world.reach(self.process, *moments)
            return work(value)

        chosen = function if self.is_async else dfunction
        chosen.__name__ = name
        return chosen


async def aplay(script: Generator[Any, Any, Any]) -> Any:
    """Carry a script out in an ``async def`` body."""
    try:
        call = next(script)
        while True:
            try:
                value = await call()
            except Exception as error:  # noqa: BLE001 - the script decides
                call = script.throw(error)
            else:
                call = script.send(value)
    except StopIteration as end:
        return end.value


def splay(script: Generator[Any, Any, Any]) -> Any:
    """Carry a script out in a ``def`` body."""
    try:
        call = next(script)
        while True:
            try:
                value = call()
            except Exception as error:  # noqa: BLE001 - the script decides
                call = script.throw(error)
            else:
                call = script.send(value)
    except StopIteration as end:
        return end.value


# ------------------------------------------------------------------------------------------------------------ the play


def play(row: Row, url: str) -> None:
    """Play the scenario of a row on an empty database, and compare its end with the forecast."""
    scene = Scene(row)
    # In the long form, all that is killed is a process of its own.
    forks = LONG and bool({"kill", "kills", "kill_each", "poison"} & set(row.values()))
    with world(url, lambda process, _: Code(scene, process), forks=forks) as stage:
        scene.world = stage
        stage.memory.append(scene)
        if "transaction" in row.values():
            stage.create_table()
        scene.run = stage.operator.parts.workflow.start(0, id="one")
        _play(scene)
        _compare(scene, forecast_run(row))


def _play(scene: Scene) -> None:
    row, stage = scene.row, scene.world
    event, moment = row["event"], row["moment"]
    if row["ending"] in {"poison", "pass_timeout"}:
        _cut_off(stage, Process.kill if row["ending"] == "poison" else Process.time_over)
    if moment in UNFINISHED or moment in INSIDE:
        _arm(scene, event, moment)
    stage.work(*_steps(scene))


def _cut_off(stage: World, event: Callable[[Process], object]) -> None:
    """Cut each call of the last step off until the cause of the failure is gone."""

    def cut(process: Process) -> object:
        if stage.healthy:
            return None
        _cut_off(stage, event)
        return event(process)

    stage.at("poison", cut)


def _steps(scene: Scene) -> list[Callable[[], object]]:
    """Return what happens when nothing is due: events, signals and the passage of time."""
    row, stage = scene.row, scene.world
    event, moment, second = row["event"], row["moment"], row["second"]
    steps: list[Callable[[], object]] = [lambda: _send(scene, "s", "s", "t")]
    if moment == "waiting":
        steps.append(lambda: _happen(scene, event))
    if moment in UNFINISHED and second == "kill":
        steps.append(lambda: stage.at("shipping", Process.kill))
    elif moment in UNFINISHED:
        steps.append(lambda: _happen(scene, second))
    if moment == "waking":
        # The row of a wait that an earlier attempt has written gets its result.
        steps.append(lambda: stage.hooks.update(record=lambda: _happen(scene, event, stage.process)))
    steps += _push(scene)
    if row["ending"] == "deadline":
        steps.append(lambda: stage.clock.advance("11d"))
    steps.append(lambda: _go(scene))
    steps += [lambda: stage.clock.advance("1h")] * 4
    steps.append(lambda: setattr(stage, "healthy", True))
    if moment == "ended":
        steps.append(lambda: _happen(scene, event))
    if moment not in UNFINISHED:
        steps.append(lambda: _happen(scene, second))
    return [*steps, *_push(scene), lambda: _go(scene), *[lambda: stage.clock.advance("1h")] * 4]


def _arm(scene: Scene, event: str, moment: str) -> None:
    """Have an event happen at a moment to come, or now if the run is queued."""
    stage = scene.world

    def happen(process: Process) -> None:
        _happen(scene, event, process)

    if moment == "queued":
        _happen(scene, event)
    elif moment in {"recording", "parking"}:
        operation = "record" if moment == "recording" else "settle"

        def arm(process: Process) -> None:
            if event == "resume":
                scene.run.pause("for a while")
            stage.hooks[operation] = lambda: happen(process)

        stage.at("working", arm)
    elif event in {"kills", "kill_each"}:
        _arm_kills(stage, 3 if event == "kills" else 2)
    elif moment in {"working", "shipping", "undoing"}:
        stage.at(moment, happen)


def _arm_kills(stage: World, count: int) -> None:
    """Have the next undo kill so many workers; three are its limit."""
    for _ in range(count):
        stage.at("undoing", Process.kill)


def _push(scene: Scene) -> list[Callable[[], object]]:
    """Return the steps after which each run waits for its last signal, or has ended."""

    def resume() -> None:
        if scene.row["event"] == "pause":
            _refusable(scene, scene.run.resume)
        for run in (scene.run, *(run for run, _ in scene.forked)):
            if run is not scene.run and scene.feature in {"signal", "first"}:
                for value in (101, 102):
                    _refusable(scene, lambda run=run, value=value: run.signal("s", value))
        _send(scene, "s", "s", "t")
        scene.world.clock.advance("2h")

    return [resume]


def _go(scene: Scene) -> None:
    """Send the last signal to each run."""
    for run in (scene.run, *(run for run, _ in scene.forked)):
        _refusable(scene, lambda run=run: run.signal("go"))


def _send(scene: Scene, *names: str) -> None:
    """Send a signal of each name, with a value that no other one has."""
    if scene.feature not in {"signal", "first"}:
        return
    for name in names:
        value = len(scene.sent) + 1
        if _refusable(scene, lambda name=name, value=value: scene.run.signal(name, value)):
            scene.sent.append(value)


def _refusable(scene: Scene, action: Callable[[], Any]) -> Any:
    """Do what may be refused because of the state of the run."""
    try:
        return action() or True
    except RedriveError as error:
        scene.refused.append(str(error))
        return None


def _happen(scene: Scene, event: str, process: Process | None = None) -> None:
    if event not in {"none", "restart"}:
        getattr(_Events, event)(scene, process)


class _Events:
    """The events, by their names."""

    @staticmethod
    def cancel(scene: Scene, _: Process | None) -> None:
        _refusable(scene, lambda: scene.run.cancel("by the test"))

    @staticmethod
    def cancel_job(scene: Scene, _: Process | None) -> None:
        _refusable(scene, lambda: scene.run.job.cancel("by the test"))

    @staticmethod
    def cancel_twice(scene: Scene, _: Process | None) -> None:
        for _ in range(2):
            _refusable(scene, lambda: scene.run.cancel("by the test"))

    @staticmethod
    def cancel_bulk(scene: Scene, _: Process | None) -> None:
        _refusable(scene, lambda: _app(scene).jobs.cancel(_only(scene), why="by the test"))

    @staticmethod
    def pause(scene: Scene, _: Process | None) -> None:
        _refusable(scene, lambda: scene.run.pause("for a while"))

    @staticmethod
    def resume(scene: Scene, process: Process | None) -> None:
        if scene.row["moment"] not in {"recording", "parking"} or process is None:
            _Events.pause(scene, process)
        _refusable(scene, scene.run.resume)

    @staticmethod
    def fork(scene: Scene, _: Process | None) -> None:
        # Steps are copied after the end only: what becomes of a step that two living runs share is not promised.
        def fork() -> None:
            shares = scene.world.healthy and any(each.name == "ship" for each in scene.run.timeline())
            # Steps that were undone are executed anew in the fork, and have effects of their own.
            keeps = shares and str(scene.run.state) == "succeeded"
            scene.forks.append((scene.run.fork("ship" if shares else None).id, keeps))

        _refusable(scene, fork)

    @staticmethod
    def retry(scene: Scene, _: Process | None) -> None:
        _refusable(scene, scene.run.job.retry)

    @staticmethod
    def redrive(scene: Scene, _: Process | None) -> None:
        _refusable(scene, lambda: _app(scene).jobs.redrive(_only(scene)))

    @staticmethod
    def supply(scene: Scene, _: Process | None) -> None:
        _refusable(scene, lambda: scene.run.supply("ship", "parcel"))

    @staticmethod
    def delete(scene: Scene, _: Process | None) -> None:
        _refusable(scene, lambda: _app(scene).jobs.delete(_only(scene)))

    @staticmethod
    def archive(scene: Scene, _: Process | None) -> None:
        _refusable(scene, lambda: _app(scene).jobs.archive(_only(scene), scene.archived.extend))

    @staticmethod
    def kill(_: Scene, process: Process | None) -> None:
        assert process is not None
        process.kill()

    @staticmethod
    def term(_: Scene, process: Process | None) -> None:
        assert process is not None
        process.term()

    @staticmethod
    def deploy(scene: Scene, _: Process | None) -> None:
        scene.world.deploy()

    @staticmethod
    def clock(scene: Scene, _: Process | None) -> None:
        scene.world.step_back("30m")

    @staticmethod
    def lock(scene: Scene, _: Process | None) -> None:
        scene.world.lock_jobs()

    @staticmethod
    def backlog(scene: Scene, _: Process | None) -> None:
        scene.world.operator.parts.neighbour.enqueue_many(range(NEIGHBOURS))

    @staticmethod
    def delayed(scene: Scene, _: Process | None) -> None:
        scene.world.operator.parts.neighbour.options(delay="30d").enqueue_many(range(NEIGHBOURS))


def _only(scene: Scene) -> Filter:
    return Filter(ids=(scene.run.job.id,))


def _app(scene: Scene) -> redrive.App:
    return scene.world.operator.app


# ------------------------------------------------------------------------------------------------------------ the laws


def _compare(scene: Scene, forecast: RunForecast) -> None:
    ledger, row = scene.world.ledger, scene.row
    app = _app(scene)
    runs = [(str(each.job.refresh().state), each, copied) for each, copied in scene.forked]
    state = None
    if forecast.gone:
        assert () == tuple(each for each in app.runs.select(workflow="course") if each.id == "one")
        state = min(forecast.states)
    else:
        state = str(scene.run.state)
        why = f"{scene.run.why}; refused: {scene.refused}"
        assert state in forecast.states, f"{state} is none of {sorted(forecast.states)}: {why}"
    for (now, fork, _), (allowed, _) in zip(runs, forecast.forks, strict=True):
        assert now in allowed, f"the fork is {now}: {fork.why}"
    assert [] == ledger.leaks
    # A `def` function goes on after its time limit, while the run is undone.
    if (row["ending"], row["colour"]) != ("pass_timeout", "def"):
        assert [] == ledger.used, "effects were used after they had been taken back"
    ends = {row["event"], row["second"]} & {"kill", "kills", "kill_each", "term"}
    most = 2 if ends and row["moment"] == "undoing" else 1
    if row["ending"] == "poison" and scene.forks:
        # A death in the last step of one run ends an undo of the other one, too, which so begins anew: three at most.
        most = 3
    assert {} == {ledger.made[token]: count for token, count in ledger.undone.items() if count > most}
    if not forecast.gone:
        _compare_effects(scene, [(state, False), *((now, copied) for now, _, copied in runs)])
    if not forecast.gone:
        _compare_run(scene, state)
    assert () == app.database.verify()


def _compare_effects(scene: Scene, states: list[tuple[str, bool]]) -> None:
    """Compare the effects that are left with those of the runs that have succeeded."""
    ledger, row = scene.world.ledger, scene.row
    left = Counter(name for token, name in ledger.made.items() if not ledger.undone[token] and name != "kid")
    names = {
        "room", *{"step": ["extra"], "retry": ["extra"], "undo": ["extra", "other"], "gather": ["extra", "other"],
        "named": ["extra", "other"],
                  "drop": ["extra"]}.get(row["feature"], []),
    }  # fmt: skip
    # What was done in the moment of a crash, or before a body began anew, may have no record.
    slack = sum(row[each] in {"kill", "term", "restart"} for each in ("event", "second"))
    # An undo that kills three workers has failed.
    slack += row["event"] == "kills"
    # The end of a time limit, or of a worker, cuts off the forks that run beside the run, too.
    slack += len(scene.forks) * (row["ending"] in {"pass_timeout", "poison"})
    # The body of a fork begins anew, too.
    slack += len(scene.forks) * scene.restarts
    expected = live_effects(states, origin_shared=states[0][0] == "succeeded")
    for name in names:
        # A branch that was dropped is not executed anew when its run starts again.
        least = 0 if (row["feature"], name) == ("drop", "extra") else expected
        assert least <= left[name] <= expected + slack, f"{left[name]} of {name} are left, and not {expected}"
    if row["event"] == "kills":
        assert left.total() <= expected * len(names) + 1, f"{left} are left: more than one undo has failed"
    if row["feature"] == "child":
        kids = _app(scene).runs.select(workflow="kid")
        ended = Counter(str(_app(scene).runs.get("kid", each.id).state) for each in kids)
        assert set(ended) <= {"succeeded", "dead", "cancelled"}, f"children are {ended}"
        kept = sum(name == "kid" and not ledger.undone[token] for token, name in ledger.made.items())
        assert ended["succeeded"] <= kept <= ended["succeeded"] + slack
    if row["feature"] == "transaction":
        rows = Counter(scene.world.rows())
        # A fork may begin behind the place at which the body begins anew.
        passes = {1 + scene.restarts}
        assert all(count in (passes if id == "one" else {1, *passes}) for id, count in rows.items()), (
            f"committed {rows}"
        )
        assert sum(state == "succeeded" and not copied for state, copied in states) <= len(rows)


def _compare_run(scene: Scene, state: str) -> None:
    """Compare the signals and the values of a run."""
    if scene.feature in {"signal", "first"} and not scene.restarts:
        unread = [int(each.payload) for each in scene.run.signals() if each.name in {"s", "t"}]
        assert sorted(scene.sent) == sorted(scene.received.get("one", []) + unread)
    assert [] == [each.error for each in scene.run.job.attempts if "another worker" in (each.error or "")]
    values = scene.run.values()
    if state == "succeeded" or (
        scene.row["ending"] in {"raises", "cancels", "too_large", "wrong_type"} and state == "dead"
    ):
        assert "shipped" == values.get("stage"), values
