"""Adapter for the group ``hedge.grpc`` of ``inprocess.json``: copies of a call race, under both event loops.

A server answers the attempts at the instants that the case names, and at no other; a case in which no attempt is
answered runs for an hour of virtual time. In redrive the fatal codes are errors that ``on`` does not name, a pushback
is an error with a hint, and a negative one is `redrive.errors.GiveUp`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from redrive import Policy
from redrive.errors import GiveUp
from redrive.policy.budget import ThrottleBudget
from redrive.retrying import Hedge, SharedBudget
from redrive.retrying.context import using
from tests.conformance.adapters.vocabulary import UnknownWord, demand, is_refused, read
from tests.retrying.helpers import JumpingLoop, LoopClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.loading import Case

_HOUR = 3600.0


class _NonFatal(Exception):
    """A status that lets the race continue."""


class _Fatal(Exception):
    """Any other status."""


def hedge(case: Case) -> None:
    """Check the start times of the attempts, which of them are cancelled, and the result."""
    data = read(case.data, "policy", "events", "expect")
    if is_refused(data["expect"], lambda: _Race(data)):
        return
    expect = read(data["expect"], "sends", "cancelled", "result")
    demand(expect, "sends", "cancelled", "result")
    for run in (_run_asyncio, _run_trio):
        race = _Race(data)
        run(race)
        if "sends" in expect:
            assert expect["sends"] == race.sends
        if "cancelled" in expect:
            assert expect["cancelled"] == sorted(race.cancelled)
        if "result" in expect:
            assert expect["result"] == race.result


def _run_asyncio(race: _Race) -> None:
    async def watched() -> None:
        task = asyncio.ensure_future(race.run())
        await asyncio.wait([task], timeout=_HOUR)
        race.is_over = True
        task.cancel()
        await asyncio.wait([task])

    with using(clock=LoopClock()), asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(watched())


def _run_trio(race: _Race) -> None:
    async def watched() -> None:
        with trio.move_on_after(_HOUR):
            await race.run()
        race.is_over = True

    with using(clock=LoopClock()):
        trio.run(watched, clock=trio.testing.MockClock(autojump_threshold=0))


def _event(entry: Any) -> tuple[int, tuple[float, str]]:
    match entry:
        case [int() | float() as at, int() as attempt, str() as status] if status and status != "pushback":
            return attempt, (at, status)
    raise UnknownWord(
        f"event {entry!r} (known: [seconds, attempt, status]; a status is a code or pushback:milliseconds)"
    )


class _Race:
    def __init__(self, data: Mapping[str, Any]) -> None:
        fields = ("max_attempts", "hedging_delay", "non_fatal", "deadline", "throttle", "client_cap")
        given = read(data["policy"], *fields)
        self.sends: list[float] = []
        self.cancelled: list[int] = []
        self.result: str | None = None
        self.is_over = False
        self._non_fatal = given.get("non_fatal") or []
        self._answers = dict(_event(each) for each in data.get("events") or [])
        budget = None
        if given.get("throttle") is not None:
            entry = read(given["throttle"], "tokens", "max", "ratio")
            throttle = ThrottleBudget(entry["max"], ratio=entry.get("ratio", 0.1))
            budget = SharedBudget(throttle, ledger=throttle.open(entry.get("tokens")))
        most = min(given["max_attempts"], given.get("client_cap") or given["max_attempts"])
        self._policy = Policy(
            on=_NonFatal,
            attempts=1,
            deadline=given.get("deadline"),
            idempotent=True,
            hedge=Hedge(given.get("hedging_delay") or 0, most),
            budget=budget,
        )

    async def run(self) -> None:
        """Make the call, and record its result."""
        try:
            status = await self._policy.acall(self._attempt)
        except TimeoutError:
            status = "DEADLINE"
        except Exception as error:  # noqa: BLE001 - a status of the case
            status = str(error)
        self.result = f"{status}@{round(LoopClock().monotonic(), 6):g}"

    async def _attempt(self) -> str:
        self.sends.append(round(LoopClock().monotonic(), 6))
        number = len(self.sends)
        at, status = self._answers.get(number, (2 * _HOUR, "never"))
        try:
            await LoopClock().asleep(at - LoopClock().monotonic())
        except BaseException:
            if not self.is_over and LoopClock().monotonic() < _HOUR:
                self.cancelled.append(number)
            raise
        return self._answer(status)

    def _answer(self, status: str) -> str:
        name, _, milliseconds = status.partition(":")
        if name == "pushback":
            if not milliseconds.isdigit():
                raise GiveUp(status)
            error = _NonFatal(status)
            error.hint = int(milliseconds) / 1000  # type: ignore[attr-defined]
            raise error
        if status == "OK":
            return status
        raise (_NonFatal if status in self._non_fatal else _Fatal)(status)
