"""Workers with jobs, runs, instances and events are killed, suspended past their leases, and lose PostgreSQL."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from redrive import Filter
from redrive.engine.machine import MoveRecord
from redrive.engine.runs import StepOutcome
from redrive.stores.operations import jobs, managing_runs
from tests.acceptance.chaos import EVERYTHING, enough, marks, sized
from tests.acceptance.processes import Deployment
from tests.acceptance.servers import own
from tests.acceptance.storm import Part, Storm, acknowledged, calm, check, load, produce

pytestmark = marks

SEED = int(os.environ.get("REDRIVE_CHAOS_SEED", time.time_ns() % 1_000_000))
"""Of the faults; a test that fails shows it."""

LEAST = {"published": 101, "ordered": 51}
"""Events and runs without which a storm proves too little."""


OPEN = ("ready", "running")


class Jobs(Part):
    """Plain jobs, beside the rest."""

    work = '''

@app.task(retry="10 20ms")
async def plain(number: int, context: Context) -> int:
    """Fail the first time."""
    note("job", number, os.getpid())
    if context.failures == 0:
        raise RuntimeError("not yet")
    return number
'''
    producer = """
producers.append(lambda number: attempt(lambda: work.plain.enqueue(number), "job", number))
"""

    def settled(self, stage: Deployment) -> bool:
        """Return True if each job has ended."""
        return not any(stage.app.jobs.select(Filter(task="plain", state=state, limit=1)) for state in OPEN)

    def audit(self, stage: Deployment, storm: Storm) -> None:
        """Check that each acknowledged job has succeeded."""
        done = {job.id for job in stage.app.jobs.select(Filter(task="plain", state="succeeded", limit=EVERYTHING))}

        assert len(acknowledged(stage, "job")) <= len(done)
        assert () == stage.app.jobs.select(Filter(task="plain", state="dead", limit=10))


class Instances(Part):
    """Instances of a machine with two states, which count their transitions and queue events while they are busy."""

    work = """

class Tick(msgspec.Struct):
    number: int


class Count(msgspec.Struct):
    ticks: int = 0


meter = app.machine("meter", data=Count, retry="10 20ms", busy="queue")


def tick(event: Tick, context: Context) -> None:
    note("tick", event.number, os.getpid())
    if event.number % 5 == 0 and context.failures == 0:
        raise RuntimeError("not yet")
    count = context.data or Count()
    context.set_data(Count(count.ticks + 1))


@meter.start(after=["odd"])
async def even(event: Tick, context: Context) -> None:
    tick(event, context)


@meter.state(after=[even])
async def odd(event: Tick, context: Context) -> None:
    tick(event, context)
"""
    producer = """
def send(number):
    instance, event = f"m{number % 7}", work.Tick(number)
    insist(lambda: work.meter.send(instance, event, key=f"tick-{number}"), "sent", instance, number)


producers.append(send)
"""

    def settled(self, stage: Deployment) -> bool:
        """Return True if each event has been the turn."""
        moves = [move for instance in self._instances(stage) for move in self._history(stage, instance)]
        return not any(move.status in {"queued", "running"} for move in moves)

    def audit(self, stage: Deployment, storm: Storm) -> None:
        """Check that each instance made one transition for each of its events, in their order."""
        sent: dict[str, list[str]] = {}
        for words in acknowledged(stage, "sent"):
            instance, number = words.split()
            sent.setdefault(instance, []).append(f"tick-{number}")

        assert 7 == len(sent)
        for instance, keys in sent.items():
            moves = self._history(stage, instance)
            states = ["even", "odd"] * len(keys)
            assert [("moved", key) for key in keys] == [(move.status, move.event_key) for move in moves]
            assert states[: len(keys)] == [move.to_state for move in moves]
            assert len(keys) == stage.module.meter.get(instance).data.ticks

    @staticmethod
    def _instances(stage: Deployment) -> list[str]:
        return [each.key for each in stage.app.machines.machine("meter").select(limit=100)]

    @staticmethod
    def _history(stage: Deployment, instance: str) -> list[MoveRecord]:
        """Return all moves of an instance, oldest first."""
        found = stage.app.machines.machine("meter").history(instance, limit=EVERYTHING)
        return sorted(found, key=lambda move: move.id)


class Events(Part):
    """A topic with subscriptions of each order."""

    work = """

class Click(msgspec.Struct):
    number: int
    key: str


clicks = app.topic("clicks", Click)


def click(kind: str, event: Click, context: Context) -> None:
    if event.number % 9 == 0 and context.failures == 0:
        raise RuntimeError("not yet")
    note("click", kind, event.number, event.key, os.getpid())


@clicks.subscribe("strict", retry="10 20ms")
async def strict(event: Click, context: Context) -> None:
    click("strict", event, context)


@clicks.subscribe("keyed", order="key", retry="10 20ms")
async def keyed(event: Click, context: Context) -> None:
    click("keyed", event, context)


@clicks.subscribe("loose", order="none", retry="10 20ms")
async def loose(event: Click, context: Context) -> None:
    click("loose", event, context)
"""
    producer = """
def publish(number):
    key = f"k{number % 5}"
    attempt(lambda: work.clicks.publish(work.Click(number, key), key=key), "published", number)


producers.append(publish)
"""

    def settled(self, stage: Deployment) -> bool:
        """Return True if all subscriptions are at the end, and no delivery is left."""
        return not any(each.lag.events or each.lag.failed for each in stage.app.topics.select())

    def audit(self, stage: Deployment, storm: Storm) -> None:
        """Check that each subscription got every event, in its order."""
        published = {int(number) for number in acknowledged(stage, "published")}
        for kind in ("strict", "keyed", "loose"):
            got = [words.split() for words in stage.noted("click")]
            first = dict.fromkeys((int(number), key) for name, number, key, _ in got if name == kind)
            numbers = [number for number, _ in first]

            assert len(published) >= LEAST["published"]
            assert set() == published - set(numbers), kind
            if kind == "strict":
                assert sorted(numbers) == numbers
            if kind == "keyed":
                by_key = {key: [number for number, of in first if of == key] for _, key in first}
                assert {key: sorted(found) for key, found in by_key.items()} == by_key


class Runs(Part):
    """Runs of a workflow with steps that fail, a sleep, branches, a signal and a child run.

    Each execution of a step writes a token of its own, which is the result of the step.
    """

    work = """

import uuid

from redrive import Flow

tried = set()


async def charge(number: int, place: str) -> str:
    token = uuid.uuid4().hex
    note("step", number, place, token)
    return token


def book(number: int, place: str) -> str:
    token = uuid.uuid4().hex
    note("step", number, place, token)
    if (number, place) not in tried:
        tried.add((number, place))
        raise ConnectionError("not yet")
    return token


@app.workflow()
async def packing(flow: Flow, number: int) -> str:
    return await flow.step(book, number, "packed", retry="20 20ms")


@app.workflow()
async def checkout(flow: Flow, number: int) -> list[str]:
    paid = await flow.step(charge, number, "1")
    await flow.sleep("50ms")
    booked, again = await flow.gather(
        flow.step(book, number, "3.0.1", retry="20 20ms"), flow.step(charge, number, "3.1.1")
    )
    packed = await flow.call(packing, number) if number % 4 == 0 else ""
    parcel = await flow.wait_for("shipped", int)
    return [paid, booked, again, packed, str(parcel)]
"""
    producer = """
def order(number):
    insist(lambda: work.checkout.start(number, id=f"order-{number}"), "ordered", number)
    insist(lambda: work.checkout.run(f"order-{number}").signal("shipped", number, key="parcel"), "shipped", number)


producers.append(order)
"""

    def settled(self, stage: Deployment) -> bool:
        """Return True if each run has ended."""
        tasks = ("checkout", "packing")
        return not any(
            stage.app.jobs.select(Filter(task=task, state=state, limit=1)) for task in tasks for state in OPEN
        )

    def audit(self, stage: Deployment, storm: Storm) -> None:
        """Check that each run has its result, and each of its steps one row, which the run went on with.

        The row of a step has the token of one execution of that step, and no two rows have the same.
        """
        ordered = [int(number) for number in acknowledged(stage, "ordered")]
        ran = {token: (int(number), place) for number, place, token in map(str.split, stage.noted("step"))}
        used: list[str] = []

        assert len(ordered) >= LEAST["ordered"]
        assert len(ran) == len(stage.noted("step"))
        for number in ordered:
            found = stage.app.store.run(managing_runs.timeline("checkout", f"order-{number}"))
            result = msgspec.json.decode(stage.app.store.run(jobs.result(found.job.id)) or b"null")
            rows = {row.path: msgspec.json.decode(row.result or b"null") for row in found.steps}
            places = ["1", "3.0.1", "3.1.1"]

            assert result is not None, [each.traceback for each in found.attempts]
            assert {StepOutcome.OK} == {row.outcome for row in found.steps}
            assert [rows[place] for place in places] == result[:3]
            assert [(number, place) for place in places] == [ran[rows[place]] for place in places]
            if number % 4 == 0:
                assert (rows["4"], (number, "packed")) == (result[3], ran[result[3]])
            assert ["", str(number)][number % 4 == 0 :] == result[3 + (number % 4 == 0) :]
            assert [None] != [signal.path for signal in found.signals]
            used += [token for token in result[:4] if token]
        assert len(set(used)) == len(used)


PARTS: tuple[Part, ...] = (Jobs(), Instances(), Events(), Runs())


def _ride_out(stage: Deployment, storm: Storm) -> None:
    """Produce under a storm, let the workers finish, and audit what they have done."""
    try:
        producer = produce(stage, PARTS, pause=0.02)
        storm.blow(sized(30, 600))
        # On a busy machine the producer needs longer for numbers that prove something.
        stage.until(lambda: all(len(acknowledged(stage, kind)) >= least for kind, least in LEAST.items()), patience=120)
        enough(stage, producer)
        calm(stage, PARTS, patience=sized(90, 900))
        storm.end()
        for part in PARTS:
            part.audit(stage, storm)
        check(stage)
    except AssertionError as error:
        error.add_note(f"REDRIVE_CHAOS_SEED={SEED}, faults: {storm.faults}")
        raise


@pytest.mark.night  # the tests of kills, restarts and terminated sessions prove each of these promises alone
@pytest.mark.realtime
def test_flows_on_postgres_survive_a_storm(tmp_path: Path):
    """Three workers are killed and suspended, and the server restarts: each recorded step ran to its record once, no
    transition is lost or doubled, no event is skipped, and the events of a key keep their order."""
    with (
        own(Path(tempfile.mkdtemp(prefix="redrive-storm-"))) as server,
        load(tmp_path, "postgres", PARTS, url=server.url()) as stage,
    ):
        stage.lease_for = "2s"
        _ride_out(stage, Storm(stage, 3, SEED, server))


@pytest.mark.night  # the tests of kills, restarts and terminated sessions prove each of these promises alone
@pytest.mark.realtime
def test_flows_on_sqlite_survive_a_storm(tmp_path: Path):
    """Kill and suspend one worker, with the same promises."""
    with load(tmp_path, "sqlite", PARTS) as stage:
        stage.lease_for = "2s"
        _ride_out(stage, Storm(stage, 1, SEED))
