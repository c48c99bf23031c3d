"""Adapters for ``refresh.json``: time lines of a refresh, English policies, recurrences."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import convert

from redrive.errors import ScheduleError, ScheduleSyntaxError
from redrive.schedule import Exhausted, Gap, Outcome, RefreshPolicy, RefreshState, Rule, Schedule, Strategy, refresh
from tests.conformance.adapters.vocabulary import demand, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redrive.schedule import Action, Move
    from tests.conformance.loading import Case

EARLY = datetime(1900, 1, 1, tzinfo=UTC)
"""Before the first occurrence of every case."""


def span(text: str) -> timedelta:
    """A duration of ISO 8601."""
    return convert(text, timedelta, strict=False) if "W" not in text else timedelta(weeks=int(text.strip("PW")))


LISTED = {"rrule", "dtstart", "exdate", "rdate"}
OPTIONS: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    "timeout": ("timeout", span),
    "delays": ("delays", lambda value: tuple(span(each) for each in value)),
    "repeat_last": ("repeat_last", bool),
    "strategy": ("strategy", Strategy),
    "on_exhausted": ("on_exhausted", Exhausted),
    "give_up_after": ("give_up_after", span),
    "catchup_window": ("catch_up", span),
}
"""What the cases call the fields of a policy."""

GIVEN_UP_AT_START = "give_up"
"""What the cases call giving up where it happens instead of a start."""


def moment(text: str) -> datetime:
    """An instant, or a time on the wall clock."""
    return datetime.fromisoformat(text)


def schedule_of(data: Mapping[str, Any], tz: str, gap: str = "shift") -> Schedule:
    """A schedule as the cases write it."""
    return Schedule(
        start=moment(data["dtstart"]),
        rules=(Rule.parse(data["rrule"]),),
        times=tuple(moment(each) for each in data.get("rdate", ())),
        except_times=frozenset(moment(each) for each in data.get("exdate", ())),
        tz=tz,
        gap=Gap(gap),
    )


# -------------------------------------------------------------------------------------------------------------- refresh


def policy_of(data: Mapping[str, Any]) -> RefreshPolicy:
    """A policy as the time lines write it. What is to be done when it gives up is not compared by them."""
    read(data, *OPTIONS, "schedule", "tz", "gap", "on_give_up")
    given = data.get("schedule")
    schedule = given and schedule_of(read(given, *LISTED), data.get("tz", "UTC"), data.get("gap", "shift"))
    named = [(OPTIONS[name], value) for name, value in data.items() if name in OPTIONS]
    return RefreshPolicy(schedule=schedule, **{name: convert_(value) for (name, convert_), value in named})


@dataclass
class Subject:
    """Something that is refreshed."""

    policy: RefreshPolicy
    state: RefreshState = field(default_factory=RefreshState)
    starts: int = 0

    def begin(self, how: Callable[..., Move], at: datetime) -> Move:
        """Start it, with the next token."""
        move = how(self.policy, self.state, now=at, uid=f"u{self.starts + 1}")
        self.starts += move.outcome is Outcome.STARTED
        return move

    def answer(self, how: Callable[..., Move], at: datetime, event: Mapping[str, Any], **more: object) -> Move:
        """Answer for the running attempt, or for the one that the event names."""
        return how(self.policy, self.state, now=at, uid=event.get("uid", self.state.attempt_uid), **more)


EVENTS: Mapping[str, Callable[[Subject, datetime, Mapping[str, Any]], Move]] = {
    "start": lambda subject, at, _: subject.begin(refresh.start, at),
    "manual_start": lambda subject, at, _: subject.begin(refresh.trigger, at),
    "success": lambda subject, at, event: subject.answer(refresh.success, at, event),
    "failure": lambda subject, at, event: subject.answer(
        refresh.failure,
        at,
        event,
        permanent=event.get("final"),
        retry_after=span(event["retry_after"]) if "retry_after" in event else None,
    ),
    "sweep": lambda subject, at, _: refresh.sweep(subject.policy, subject.state, now=at),
    "update": lambda subject, at, event: refresh.update(
        subject.policy, subject.state, now=at, at_once=event.get("refresh_now", True)
    ),
    "pause": lambda subject, _at, _: refresh.pause(subject.state),
    "resume": lambda subject, at, _: refresh.resume(subject.policy, subject.state, now=at),
}


def timelines(case: Case) -> None:
    """The state after each event of a time line."""
    data = read(case.data, "title", "policy", "events", notes={"id", "source", "note", "seed_code_differs"})
    subject = Subject(policy_of(data["policy"]))
    for event in data["events"]:
        read(event, "at", "event", "expect", "uid", "final", "retry_after", "refresh_now")
        move = word(event["event"], EVENTS)(subject, moment(event["at"]), event)
        subject.state = move.state
        seen = _told(event["event"], move)
        expected = read(event["expect"], *seen)
        assert dict(expected) == {name: seen[name] for name in expected}, (event["at"], event["event"])


def _told(event: str, move: Move) -> dict[str, Any]:
    state = move.state
    outcome = str(move.outcome)
    return {
        "outcome": GIVEN_UP_AT_START if event == "start" and move.outcome is Outcome.GAVE_UP else outcome,
        "refresh_at": _text(state.refresh_at),
        "deadline_at": _text(state.deadline_at),
        "attempt_no": state.attempt_no,
        "attempt_uid": state.attempt_uid,
        "disabled": state.disabled_until_update,
        "disabled_reason": state.disabled_reason,
        "effects": [str(each) for each in move.effects],
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def alignment(case: Case) -> None:
    """Which of a retry and a planned refresh is made, by each strategy, and whether attempts are counted anew."""
    data = read(case.data, "case", "retry_at", "planned_at", "timeout", "expect")
    planned = moment(data["planned_at"])
    if data["retry_at"] is None:
        _check_exhausted(planned, span(data["timeout"]))
        assert data["expect"] == "see on_exhausted"
        return
    for strategy, expected in data["expect"].items():
        policy = RefreshPolicy(timeout=span(data["timeout"]), strategy=Strategy(strategy))
        at, anew = refresh.aligned(policy, moment(data["retry_at"]), planned)
        assert expected == [_text(at), "reset" if anew else "keep"], strategy


def _check_exhausted(planned: datetime, timeout: timedelta) -> None:
    """Without a retry the strategy is not asked: what counts is what is to be done when retries are exhausted."""
    schedule = Schedule(start=planned.replace(tzinfo=None), rules=(Rule.parse("FREQ=DAILY"),))
    for strategy in Strategy:
        for exhausted, outcome in ((Exhausted.GIVE_UP, Outcome.GAVE_UP), (Exhausted.WAIT_NEXT, Outcome.WAITING_NEXT)):
            policy = RefreshPolicy(schedule=schedule, timeout=timeout, strategy=strategy, on_exhausted=exhausted)
            begun = planned - timedelta(hours=1)
            started = refresh.trigger(policy, RefreshState(), now=begun, uid="u1").state
            assert outcome is refresh.failure(policy, started, now=begun, uid="u1").outcome


def natural_language(case: Case) -> None:
    """What a text means, or why it means nothing; and that it means the same when it is written back."""
    data = read(case.data, "text", "policy", "error")
    demand(data, "policy", "error")
    if "error" in data:
        with pytest.raises(ScheduleSyntaxError) as refused:
            RefreshPolicy.parse(data["text"])
        assert refused.value.problem.startswith(data["error"])
        return
    policy = RefreshPolicy.parse(data["text"])
    assert _normal(data["policy"]) == _said(policy)
    assert policy == RefreshPolicy.parse(str(policy))


def _normal(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a case says of a policy, with what it leaves to the default."""
    read(data, *OPTIONS, "schedule", "tz", "on_give_up")
    said = {OPTIONS[name][0]: OPTIONS[name][1](value) for name, value in data.items() if name in OPTIONS}
    rest = {"schedule": data.get("schedule"), "tz": data.get("tz", "UTC"), "on_give_up": data.get("on_give_up", [])}
    return {**_fields(RefreshPolicy()), **rest, **said}


def _said(policy: RefreshPolicy) -> dict[str, Any]:
    schedule = policy.schedule
    return {
        **_fields(policy),
        "schedule": None if schedule is None else [str(each) for each in schedule.rules],
        "tz": "UTC" if schedule is None else schedule.tz,
        "on_give_up": [_action(each) for each in policy.on_give_up],
    }


def _fields(policy: RefreshPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name, _ in OPTIONS.values()}


def _action(action: Action) -> dict[str, str]:
    told = {"action": action.name, "target" if action.name == "mark" else "to": action.to, "text": action.text}
    return {name: value for name, value in told.items() if value is not None}


# ----------------------------------------------------------------------------------------------------------- recurrence


def recurrence(case: Case) -> None:
    """The occurrences of a rule, as instants and on the wall clock."""
    data = read(
        case.data,
        *LISTED,
        "title",
        "tz",
        "gap",
        "expected_local",
        "expected_utc",
        "complete",
        notes={"id", "source", "note"},
    )
    schedule = schedule_of({name: data[name] for name in data if name in LISTED}, data["tz"], data.get("gap", "shift"))
    found = schedule.since(EARLY)
    listed = [next(found) for _ in data["expected_utc"]]
    assert data["expected_utc"] == [_text(each) for each in listed]
    local = [each.astimezone(schedule.place).replace(tzinfo=None) for each in listed]
    assert data["expected_local"] == [each.isoformat() for each in local]
    if data["complete"]:
        assert None is next(found, None)


def next_after(case: Case) -> None:
    """The next occurrence of a rule that began long ago. How long it takes is the subject of a benchmark."""
    data = read(case.data, *LISTED, "tz", "strictly_after", "expected", "budget_ms")
    schedule = schedule_of({name: data[name] for name in data if name in LISTED}, data["tz"])
    at = moment(data["strictly_after"]).replace(tzinfo=schedule.place)
    found = schedule.next(at, after=at)
    local = None if found is None else found.astimezone(schedule.place).replace(tzinfo=None).isoformat()
    assert data["expected"] == local


def invalid_rules(case: Case) -> None:
    """A rule that is refused; or one that says a thing twice, which then counts once."""
    data = read(case.data, "rrule", "why", "expect")
    word(data["expect"], {"reject": _check_refused, "accept_deduplicated": _check_distinct})(data["rrule"])


def _check_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        Schedule(rules=(Rule.parse(text),))


def _check_distinct(text: str) -> None:
    found = Schedule(rules=(Rule.parse(text),)).since(EARLY)
    listed = [next(found) for _ in range(100)]
    assert sorted(set(listed)) == listed
