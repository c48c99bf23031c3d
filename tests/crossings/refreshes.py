"""Items of refreshes: the factors, the refresh, and how a scenario is played."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from redrive import Context, Filter, GiveUp
from redrive.errors import NotTracked, RedriveError
from tests.crossings.arrays import Row, Table, Void
from tests.crossings.model import PERIODS, forecast_item
from tests.crossings.world import TENANT, Process, World, world

NEIGHBOURS = 20
"""Other items."""

EVERY = "Refresh every 2 hours; allow 10 minutes; on the first failure, retry after 1 minute"

REFRESHES = Table(
    "refreshes",
    {
        "feature": ("succeeds", "retries", "gives_up"),
        "colour": ("async", "def"),
        "event": (
            "none", "pause", "resume", "update", "trigger", "track", "untrack", "cancel", "retry", "kill", "term",
            "deploy", "clock", "lock", "backlog",
        ),
        "moment": ("queued", "working", "settling", "waiting"),
        "second": ("none", "pause", "resume", "update", "trigger", "untrack"),
        "store": ("sqlite", "postgres"),
    },
    (
        Void("no worker has the attempt that could end", {"event": ["kill", "term"], "moment": ["queued", "waiting"]}),
        Void("a worker with old code is stopped first: that is `term`",
             {"event": ["deploy"], "moment": ["working", "settling"]}),
        Void("nothing is written that could meet a lock", {"event": ["lock"], "moment": ["queued", "waiting"]}),
    ),
)  # fmt: skip


class Scene:
    """The state of one scenario that its functions share, in all processes."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.world: World
        self.tries = 0

    @property
    def refresh(self) -> Any:
        """The refresh, in the process of the operator."""
        return self.world.operator.parts.refresh


class Code:
    """The refresh of one process."""

    def __init__(self, scene: Scene, process: Process) -> None:
        self.scene, self.process, self.ledger = scene, process, process.world.ledger

        async def table(url: str, ctx: Context) -> None:
            if ctx.key == "one":
                await scene.world.areach(process, "working")
            self.load(ctx.key or "")

        def dtable(url: str, ctx: Context) -> None:
            if ctx.key == "one":
                scene.world.reach(process, "working")
            self.load(ctx.key or "")

        function: Callable[..., None] = table if scene.row["colour"] == "async" else dtable  # type: ignore[assignment]
        dtable.__name__ = "table"
        self.refresh = process.app.refresh(EVERY)(function)

    def load(self, key: str) -> None:
        """Fail as the row says, or note that the work is done."""
        self.ledger.look(key)
        TENANT.set(key)
        if key == "one":
            self.scene.tries += 1
            if self.scene.row["feature"] == "retries" and self.scene.tries == 1:
                raise OSError("not yet")
            if self.scene.row["feature"] == "gives_up" and self.scene.tries == 1:
                raise GiveUp("for good")
        if not self.process.dead:
            self.ledger.call(key)


# ------------------------------------------------------------------------------------------------------------ the play


def play(row: Row, url: str) -> None:
    """Play the scenario of a row on an empty database, and compare its end with the forecast."""
    scene = Scene(row)
    with world(url, lambda process, _: Code(scene, process), concurrency=3) as stage:
        scene.world = stage
        scene.refresh.track("one", "a")
        _play(scene)
        _compare(scene)


def _play(scene: Scene) -> None:
    row, stage = scene.row, scene.world
    event, moment = row["event"], row["moment"]
    stage.arrange(moment, functools.partial(_happen, scene, event))
    # A worker starts planned attempts when it begins, so that each time has a worker of its own.
    stage.work()
    stage.clock.advance("2m")
    stage.work()
    if moment == "waiting":
        _happen(scene, event, None)
    _happen(scene, row["second"], None)
    stage.work()
    for _ in range(PERIODS):
        stage.clock.advance("2h")
        stage.work()
        stage.clock.advance("2m")
        stage.work()


def _happen(scene: Scene, event: str, process: Process | None) -> None:
    app, refresh = scene.world.operator.app, scene.refresh
    actions: dict[str, Callable[[], object]] = {
        "pause": lambda: refresh.pause("one"),
        "resume": lambda: refresh.resume("one"),
        "update": lambda: refresh.update("one"),
        "trigger": lambda: refresh.trigger("one"),
        "track": lambda: refresh.track("one", "b"),
        "untrack": lambda: refresh.untrack("one"),
        "cancel": lambda: app.jobs.cancel(Filter(task="table"), why="by the test"),
        "retry": lambda: [app.job(each.id).retry() for each in app.jobs.select(Filter(task="table"))],
        "clock": lambda: scene.world.step_back("30m"),
        "deploy": scene.world.deploy,
        "lock": scene.world.lock_jobs,
        "backlog": lambda: refresh.track_many([(f"n{n}", "a") for n in range(NEIGHBOURS)]),
    }
    if event in {"kill", "term"}:
        assert process is not None
        (process.kill if event == "kill" else process.term)()
    elif event in actions:
        with contextlib.suppress(RedriveError):
            actions[event]()


# ------------------------------------------------------------------------------------------------------------ the laws


def _compare(scene: Scene) -> None:
    row, ledger, app = scene.row, scene.world.ledger, scene.world.operator.app
    forecast = forecast_item(row)
    try:
        item = scene.refresh.get("one")
    except NotTracked:
        item = None
    assert forecast.gone == (item is None)
    assert [] == ledger.leaks
    assert forecast.fewest <= ledger.calls["one"] <= forecast.most
    if item is not None:
        assert item.job_id is None, "an attempt has not ended"
        stands = item.paused or item.disabled_until_update or item.completed
        assert forecast.may_stand or not stands, "the item stands still"
        assert not forecast.stands or stands, "the item goes on"
        assert stands or item.refresh_at is not None, "an item that is neither paused nor disabled waits for nothing"
    if row["event"] == "backlog":
        assert [] == [n for n in range(NEIGHBOURS) if not ledger.calls[f"n{n}"]]
    assert () == app.database.verify()
