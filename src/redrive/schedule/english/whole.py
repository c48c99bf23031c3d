"""All pieces of a text become the fields of a policy, or a contradiction between two of them is an error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from redrive.schedule.english.combining import complete
from redrive.schedule.english.failures import Numbered
from redrive.schedule.english.notes import Limit, Pieces, wrong
from redrive.schedule.english.recurrences import FORMS
from redrive.schedule.english.retries import Retries
from redrive.schedule.english.tokens import Place, TextLine
from redrive.schedule.options import Exhausted, Strategy
from redrive.schedule.schedule import Schedule

P = TypeVar("P")


class Whole:
    """All pieces of a text, which become the fields of a policy."""

    def __init__(self, notes: Pieces, numbered: Numbered, line: TextLine) -> None:
        self._notes = notes
        self._numbered = numbered
        # Where no words are to blame.
        self._place = Place("", line.number, 1)
        self._repeats = False

    def build(self, make: Callable[..., P], start: datetime | None) -> P:
        """Return the policy; raise `ScheduleSyntaxError` if its pieces contradict each other."""
        notes, schedule = self._notes, self.schedule(start)
        delays = self._kept(self._limited(self._delays()), schedule)
        self._check_heading(delays)
        exhausted = self._ending(schedule, delays)
        given = {name: notes.get(name) for name in ("timeout", "catch_up", "jitter", "give_up_after", "give_up_since")}
        return make(
            schedule=schedule,
            delays=delays,
            repeat_last=self._repeats,
            strategy=notes.get("strategy", Strategy.ALIGN),
            on_exhausted=exhausted,
            on_give_up=tuple(notes.get("actions", ())),
            **{name: value for name, value in given.items() if value is not None},
        )

    def schedule(self, start: datetime | None) -> Schedule | None:
        """Return when it is refreshed; None if the text has no schedule."""
        if "schedule" not in self._notes:
            self._check_schedule()
            return None
        self._check_task()
        return complete(self._notes.get("schedule"), self._notes, start)

    def _at(self, *names: str) -> Place:
        return self._notes.place(*names) if any(each in self._notes for each in names) else self._place

    def _check_task(self) -> None:
        """Refuse a task beside a schedule of something that could be another task."""
        if "task" in self._notes and self._notes.get("task") is not self._notes.get("schedule"):
            place = self._notes.place("task")
            wrong(
                place,
                f"it is not clear when {place} is done, because there is a schedule beside it",
                f"{place.text} every 2 hours",
                "Email the customer that it was disabled",
            )

    def _check_heading(self, delays: tuple[timedelta, ...]) -> None:
        """Refuse the announcement of retries that are not described."""
        notes = self._notes
        if notes.get("heading") in {None, "refresh policy"} or delays:
            return
        limit: Limit | None = notes.get("attempts")
        is_described = any(each in notes for each in ("retry", "go_on", "last_failure")) or (
            (limit is not None and limit.is_plan) or notes.get("strategy") is Strategy.PLANNED_ONLY
        )
        if not is_described:
            wrong(
                notes.place("heading"),
                "it is missing how often it is retried",
                "Retry 3 times every 5 minutes",
                "Retry every 5 minutes",
                "Do not retry",
            )

    def _check_schedule(self) -> None:
        names = [each for each in ("tz", "business", "not_except_days", "not_except_months") if each in self._notes]
        if names:
            wrong(
                self._notes.place(*names),
                f"{self._notes.place(*names)} belongs to a schedule, and there is none",
                *FORMS,
            )

    def _delays(self) -> tuple[timedelta, ...]:
        """Return the delays as they are described, without a limit of attempts."""
        notes = self._notes
        retry: Retries | None = notes.get("retry")
        numbered = self._numbered.delays
        if numbered and retry is not None:
            place = notes.place("retry")
            wrong(
                place,
                f"retries described twice: {next(iter(self._numbered.places.values()))} and {place}",
                "one of them only",
            )
        missing = next((each for each in range(1, len(numbered) + 1) if each not in numbered), None)
        if missing is not None:
            wrong(
                self._numbered.places[max(numbered)],
                f"failure {missing} is not described, but failure {max(numbered)} is",
                f"On the {max(numbered)} failures, retry after 5 minutes".replace("the ", "the first "),
                "Retry 3 times every 5 minutes",
            )
        delays = tuple(numbered[each] for each in sorted(numbered))
        if retry is not None:
            delays = self._of_clause(retry)
        if "further" in notes:
            if self._repeats or (retry is not None and retry.count == 0):
                wrong(
                    notes.place("further"),
                    f"retries described twice: {notes.place('retry')} and {notes.place('further')}",
                    "one of them only",
                )
            self._repeats = True
            return (*delays, notes.get("further"))
        return delays

    def _of_clause(self, retry: Retries) -> tuple[timedelta, ...]:
        notes = self._notes
        spacing: timedelta | None = notes.get("spacing")
        if spacing is not None and (retry.every is not None or retry.delays or retry.count == 0):
            wrong(
                notes.place("spacing"),
                f"two delays between retries: {notes.place('retry')} and {notes.place('spacing')}",
                "one of them only",
            )
        every = retry.every if spacing is None else spacing
        if retry.delays:
            return retry.delays
        if retry.count is not None:
            return (every or timedelta(0),) * retry.count
        self._repeats = True
        assert every is not None  # one of the three is given
        return (every,)

    def _limited(self, delays: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
        """Return the delays up to the last attempt, if its number is given."""
        notes = self._notes
        limit: Limit | None = notes.get("attempts")
        attempts = None if limit is None else limit.attempts
        last: int | None = notes.get("last_failure")
        if attempts is not None and last is not None and attempts != last:
            wrong(
                notes.place("attempts"),
                f"two last failures: {notes.place('last_failure')} and {notes.place('attempts')}",
                "one of them only",
            )
        if attempts is None and last is None:
            return self._spaced(delays)
        name, place = (
            ("last_failure", notes.place("last_failure")) if attempts is None else ("attempts", notes.place("attempts"))
        )
        count = (last or 1) - 1 if attempts is None else attempts - 1
        if self._repeats:
            return self._bounded(delays, count, place)
        if not delays and "spacing" in notes:
            return (notes.get("spacing"),) * count
        is_planned = notes.get("strategy") is Strategy.PLANNED_ONLY
        if not delays and "retry" not in notes and ((limit is not None and limit.is_plan) or is_planned):
            return (timedelta(0),) * count
        if count != len(delays):
            said = (
                f"failure {last} ends the retries, but {len(delays)} retries are described"
                if name == "last_failure"
                else f"give up after {attempts} attempts, but {len(delays)} retries are described"
            )
            wrong(
                place,
                said,
                f"Retry {count} times every 5 minutes" if count > 1 else "Retry after 5 minutes",
                f"Give up after {len(delays) + 1} attempts" if delays else "Do not retry",
            )
        return delays

    def _bounded(self, delays: tuple[timedelta, ...], count: int, place: Place) -> tuple[timedelta, ...]:
        """Return the delays of retries without end up to a number of retries."""
        explicit = delays[:-1]
        if count < len(explicit) or (count == len(explicit) and "further" in self._notes):
            wrong(
                place,
                "two endings: any further failure is retried, but the last retry ends the refresh: "
                f"{self._at('further', 'retry')} and {place}",
                "one of them only",
            )
        self._repeats = False
        return (*explicit, *(delays[-1:] * (count - len(explicit))))

    def _spaced(self, delays: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
        notes = self._notes
        if "spacing" not in notes or "retry" in notes:
            return delays
        if delays:
            wrong(notes.place("spacing"), f"retries described twice: {notes.place('spacing')}", "one of them only")
        if "keep" not in notes:
            wrong(
                notes.place("spacing"),
                "it is missing how often it is retried",
                "Retry 3 times every 5 minutes",
                "Retry every 5 minutes",
            )
        self._repeats = True
        return (notes.get("spacing"),)

    def _kept(self, delays: tuple[timedelta, ...], schedule: Schedule | None) -> tuple[timedelta, ...]:
        """Return the delays of retries that go on until one succeeds, or until the next planned refresh."""
        notes = self._notes
        retry: Retries | None = notes.get("retry")
        if "keep" in notes and not self._repeats:
            ends = [each for each in ("attempts", "last_failure", "exhausted") if each in notes]
            if retry is not None and retry.count is not None:
                ends.append("retry")
            if ends:
                place = notes.place(*ends)
                wrong(notes.place("keep"), f"two endings: {place} and {notes.place('keep')}", "one of them only")
            self._repeats = bool(delays)
        if "go_on" in notes and not delays and schedule is not None:
            place = notes.place("strategy")
            wrong(
                place,
                f"{place}: it is missing how long it waits before each retry",
                f"Retry every 5 minutes until {'it succeeds' if 'keep' in notes else 'the next scheduled refresh'}",
                "On any further failure, retry after 5 minutes",
            )
        return delays

    def _ending(self, schedule: Schedule | None, delays: tuple[timedelta, ...]) -> Exhausted | None:
        """Return what is done when the retries are used up; None for the usual ending."""
        notes = self._notes
        exhausted: Exhausted | None = notes.get("exhausted")
        if exhausted is None and "last_failure" in notes:
            exhausted = Exhausted.GIVE_UP
        if exhausted is not None and self._repeats:
            place = self._at("exhausted", "last_failure")
            wrong(
                place,
                "two endings: any further failure is retried, but the last retry ends the refresh: "
                f"{self._at('further', 'retry', 'keep')} and {place}",
                "Retry 3 times every 5 minutes, then give up",
            )
        if "reset" in notes and exhausted is not Exhausted.WAIT_NEXT:
            place = notes.place("reset")
            form = "Reset attempt_no and wait until the next scheduled refresh"
            wrong(place, f"{place} belongs to a wait for the next scheduled refresh", form, "Give up")
        if exhausted is Exhausted.WAIT_NEXT and schedule is None:
            wrong(
                notes.place("exhausted"),
                "there is no scheduled refresh to wait for",
                "Refresh every hour",
                "On the second failure, give up",
            )
        if "never" in notes:
            return self._never(schedule, exhausted)
        is_planned = notes.get("strategy") is Strategy.PLANNED_ONLY and not delays and schedule is not None
        if is_planned and exhausted is None and "retry" not in notes:
            return Exhausted.WAIT_NEXT
        return exhausted

    def _never(self, schedule: Schedule | None, exhausted: Exhausted | None) -> Exhausted | None:
        """Return how a refresh that never gives up goes on."""
        notes = self._notes
        place = notes.place("never")
        others = [each for each in ("give_up_after", "gives_up", "attempts", "actions") if each in notes]
        if exhausted is Exhausted.GIVE_UP:
            others.append("exhausted" if "exhausted" in notes else "last_failure")
        if others:
            wrong(place, f"two endings: {notes.place(*others)} and {place}", "one of them only")
        if self._repeats:
            return None
        if schedule is None:
            wrong(place, f"{place}: it is missing how it goes on", "Retry every 5 minutes", "Refresh every hour")
        return Exhausted.WAIT_NEXT
