"""Adapters for ``refresh.json``: time lines of a refresh, English policies, recurrences."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from msgspec import ValidationError, convert

from redrive.errors import ScheduleError, ScheduleSyntaxError
from redrive.schedule import (
    Action,
    Exhausted,
    Gap,
    RecurrenceRule,
    RefreshOutcome,
    RefreshPolicy,
    RefreshState,
    Schedule,
    Strategy,
    refresh,
)
from tests.conformance.adapters.vocabulary import UnknownWord, demand, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redrive.schedule import RefreshTransition
    from tests.conformance.loading import Case

Named = TypeVar("Named", bound=Enum)

EARLY = datetime(1900, 1, 1, tzinfo=UTC)
"""Before the first occurrence of every case."""


def span(text: Any) -> timedelta:
    """Return a duration of ISO 8601."""
    if isinstance(text, str) and (weeks := re.fullmatch(r"P(\d+)W", text)):
        return timedelta(weeks=int(weeks[1]))
    try:
        return convert(text, timedelta, strict=True)
    except ValidationError:
        raise UnknownWord(f"{text!r} (known: a duration of ISO 8601 without months and years)") from None


def named(kind: type[Named]) -> Callable[[Any], Named]:
    """Return a function that looks a value of an enumeration up."""
    return lambda entry: word(entry, {each.value: each for each in kind})


def flag(entry: Any) -> bool:
    """Return true or false."""
    if not isinstance(entry, bool):
        raise UnknownWord(f"{entry!r} (known: true, false)")
    return entry


def spans(entry: Any) -> tuple[timedelta, ...]:
    """Return several durations."""
    return tuple(span(each) for each in entry)


LISTED = {"rrule", "dtstart", "exdate", "rdate"}
OPTIONS: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    "timeout": ("timeout", span),
    "delays": ("delays", spans),
    "repeat_last": ("repeat_last", flag),
    "strategy": ("strategy", named(Strategy)),
    "on_exhausted": ("on_exhausted", named(Exhausted)),
    "give_up_after": ("give_up_after", span),
    "catchup_window": ("catch_up", span),
}
"""The fields of a policy under the cases' names."""

GIVEN_UP_AT_START = "give_up"
"""The cases' name for giving up instead of a start."""


def moment(text: Any) -> datetime:
    """Return an instant, or a time on the wall clock."""
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise UnknownWord(f"{text!r} (known: a date and a time of ISO 8601)") from None


def given(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not null: null is the default."""
    return {name: value for name, value in data.items() if value is not None}


def schedule_of(data: Mapping[str, Any]) -> Schedule:
    """Return a schedule as the cases write it, with its place and its treatment of gaps."""
    entry = given(data)
    rules = (RecurrenceRule.parse(entry["rrule"]),) if "rrule" in entry else ()
    start = {"start": moment(entry["dtstart"])} if "dtstart" in entry else {}
    return Schedule(
        **start,
        rules=rules,
        times=tuple(moment(each) for each in entry.get("rdate", ())),
        except_times=frozenset(moment(each) for each in entry.get("exdate", ())),
        tz=entry.get("tz", "UTC"),
        gap=named(Gap)(entry.get("gap", "shift")),
    )


# -------------------------------------------------------------------------------------------------------------- refresh


def policy_of(data: Mapping[str, Any]) -> RefreshPolicy:
    """Return a policy as the time lines write it."""
    entry = given(read(data, *OPTIONS, "schedule", "tz", "gap", "on_give_up"))
    where = {name: entry[name] for name in ("tz", "gap") if name in entry}
    schedule = schedule_of(read(entry["schedule"], *LISTED) | where) if "schedule" in entry else None
    options = {OPTIONS[name][0]: OPTIONS[name][1](value) for name, value in entry.items() if name in OPTIONS}
    actions = tuple(_wanted(each) for each in entry.get("on_give_up", ()))
    return RefreshPolicy(schedule=schedule, on_give_up=actions, **options)


def _wanted(entry: Any) -> Action:
    """Return an action: a name, and perhaps a text after a colon; the time lines do not name its recipient."""
    if not isinstance(entry, str):
        raise UnknownWord(f"{entry!r} (known: name, name:text)")
    name, _, text = entry.partition(":")
    return Action(name, to="subject", text=text or None)


@dataclass
class RefreshedItem:
    """An item that is refreshed."""

    policy: RefreshPolicy
    state: RefreshState = field(default_factory=RefreshState)
    starts: int = 0

    def begin(self, how: Callable[..., RefreshTransition], at: datetime) -> RefreshTransition:
        """Start it, with the next token."""
        move = how(self.policy, self.state, now=at, uid=f"u{self.starts + 1}")
        self.starts += move.outcome is RefreshOutcome.STARTED
        return move

    def answer(
        self, how: Callable[..., RefreshTransition], at: datetime, event: Mapping[str, Any], **more: object
    ) -> RefreshTransition:
        """Answer for the running attempt, or for the one that the event names."""
        return how(self.policy, self.state, now=at, uid=event.get("uid") or self.state.attempt_uid, **more)


EVENTS: Mapping[str, Callable[[RefreshedItem, datetime, Mapping[str, Any]], RefreshTransition]] = {
    "start": lambda subject, at, _: subject.begin(refresh.start, at),
    "manual_start": lambda subject, at, _: subject.begin(refresh.trigger, at),
    "success": lambda subject, at, event: subject.answer(refresh.success, at, event),
    "failure": lambda subject, at, event: subject.answer(
        refresh.failure,
        at,
        event,
        permanent=event.get("final"),
        retry_after=span(event["retry_after"]) if event.get("retry_after") is not None else None,
    ),
    "sweep": lambda subject, at, _: refresh.sweep(subject.policy, subject.state, now=at),
    "update": lambda subject, at, event: refresh.update(
        subject.policy, subject.state, now=at, at_once=event.get("refresh_now") is not False
    ),
    "pause": lambda subject, _at, _: refresh.pause(subject.state),
    "resume": lambda subject, at, _: refresh.resume(subject.policy, subject.state, now=at),
}


def timelines(case: Case) -> None:
    """Check the state after each event of a time line."""
    notes = {"id", "source", "note", "seed_code_differs", "title"}
    data = read(case.data, "policy", "events", required=("policy", "events"), notes=notes)
    subject = RefreshedItem(policy_of(data["policy"]))
    for number, event in enumerate(data["events"], 1):
        fields = ("at", "event", "expect", "uid", "final", "retry_after", "refresh_now")
        read(event, *fields, required=fields[:3])
        move = word(event["event"], EVENTS)(subject, moment(event["at"]), event)
        subject.state = move.state
        seen = _seen(event["event"], move)
        expected = read(event["expect"], *seen)
        demand(expected, *seen)
        assert dict(expected) == {name: seen[name] for name in expected}, (number, event["at"], event["event"])


def _seen(event: str, move: RefreshTransition) -> dict[str, Any]:
    state = move.state
    outcome = str(move.outcome)
    return {
        "outcome": GIVEN_UP_AT_START if event == "start" and move.outcome is RefreshOutcome.GAVE_UP else outcome,
        "refresh_at": _text(state.refresh_at),
        "deadline_at": _text(state.deadline_at),
        "attempt_no": state.attempt_no,
        "attempt_uid": state.attempt_uid,
        "started_at": _text(state.started_at),
        "planned_at": _text(state.planned_at),
        "failing_since": _text(state.failing_since),
        "disabled": state.disabled_until_update,
        "disabled_reason": state.disabled_reason,
        "completed": state.completed,
        "paused": state.paused,
        "effects": [str(each) for each in move.effects],
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def alignment(case: Case) -> None:
    """Check the next start after a failure, by each strategy, and whether attempts are counted anew; null if never.

    Failures come a day before both the retry and the planned refresh. Where no retry is left, the strategy is not
    consulted: the policy's action for exhausted retries decides.
    """
    fields = ("retry_at", "planned_at", "timeout", "expect", "on_exhausted")
    data = read(case.data, "case", *fields, required=fields[:2] + fields[3:4])
    retry_at, planned = (None if data[name] is None else moment(data[name]) for name in fields[:2])
    options = {name: OPTIONS[name][1](value) for name, value in given(data).items() if name in OPTIONS}
    failed_at = min(filter(None, (retry_at, planned)), default=EARLY) - timedelta(days=1)
    schedule = None if planned is None else Schedule(times=(planned.astimezone(UTC).replace(tzinfo=None),))
    delays = () if retry_at is None else (retry_at - failed_at,)
    if isinstance(data["expect"], str):
        word(data["expect"], {"see on_exhausted": _check_exhausted})(schedule, delays, failed_at, options)
        return
    strategies = read(data["expect"], *Strategy, notes=())
    demand(strategies, *Strategy)
    found = {}
    for strategy in strategies:
        policy = RefreshPolicy(schedule=schedule, delays=delays, strategy=Strategy(strategy), **options)
        found[strategy] = _failed(policy, failed_at)
    assert dict(strategies) == found


def _failed(policy: RefreshPolicy, at: datetime) -> list[Any] | None:
    """Fail at the first attempt."""
    started = refresh.trigger(policy, RefreshState(), now=at, uid="u1").state
    move = refresh.failure(policy, started, now=at, uid="u1")
    if move.outcome is RefreshOutcome.GAVE_UP:
        return None
    return [_text(move.state.refresh_at), "keep" if move.state.attempt_no else "reset"]


def _check_exhausted(
    schedule: Schedule | None, delays: tuple[timedelta, ...], at: datetime, options: Mapping[str, Any]
) -> None:
    """Check that each strategy gives up, or waits for the planned refresh, as the policy requires."""
    for strategy in Strategy:
        for exhausted in Exhausted if schedule else (Exhausted.GIVE_UP,):
            entry = {"schedule": schedule, "delays": delays, "strategy": strategy, "on_exhausted": exhausted}
            found = _failed(RefreshPolicy(**options | entry), at)
            assert (exhausted is Exhausted.WAIT_NEXT) == (found is not None)


def natural_language(case: Case) -> None:
    """Check the meaning of a text, or why it has none; and that it means the same when it is written back."""
    data = read(case.data, "text", "policy", "error", required=("text",))
    demand(given(data), "policy", "error")
    if data.get("error") is not None:
        with pytest.raises(ScheduleSyntaxError) as refused:
            RefreshPolicy.parse(data["text"])
        assert data["error"] == refused.value.problem[: len(data["error"])]
        return
    policy = RefreshPolicy.parse(data["text"])
    assert _normal(data["policy"]) == _entry(policy)
    assert policy == RefreshPolicy.parse(str(policy))


def _normal(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy as the case describes it, completed by the defaults."""
    entry = given(read(data, *OPTIONS, "schedule", "tz", "gap", "jitter", "on_give_up"))
    options = {OPTIONS[name][0]: OPTIONS[name][1](value) for name, value in entry.items() if name in OPTIONS}
    rest = {
        "schedule": [str(RecurrenceRule.parse(each)) for each in entry.get("schedule", ())],
        "tz": entry.get("tz", "UTC"),
        "gap": named(Gap)(entry.get("gap", "shift")),
        "jitter": span(entry.get("jitter", "PT0S")),
        "on_give_up": [
            dict(read(each, "action", "to", "target", "text", required=("action",)))
            for each in entry.get("on_give_up", ())
        ],
    }
    return {**_fields(RefreshPolicy()), **rest, **options}


def _entry(policy: RefreshPolicy) -> dict[str, Any]:
    schedule = policy.schedule
    parts = () if schedule is None else (*schedule.rules, *schedule.crons, *schedule.times)
    return {
        **_fields(policy),
        "schedule": [str(each) for each in parts],
        "tz": "UTC" if schedule is None else schedule.tz,
        "gap": Gap.SHIFT if schedule is None else schedule.gap,
        "jitter": policy.jitter,
        "on_give_up": [_action(each) for each in policy.on_give_up],
    }


def _fields(policy: RefreshPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name, _ in OPTIONS.values()}


def _action(action: Action) -> dict[str, str]:
    written = {"action": action.name, "target" if action.name == "mark" else "to": action.to, "text": action.text}
    return {name: value for name, value in written.items() if value is not None}


# ----------------------------------------------------------------------------------------------------------- recurrence


def recurrence(case: Case) -> None:
    """Check the occurrences of a rule, as instants and on the wall clock."""
    expected = ("expected_local", "expected_utc")
    notes = {"id", "source", "note", "title"}
    data = read(case.data, *LISTED, "tz", "gap", *expected, "complete", notes=notes)
    entry = given(data)
    demand(entry, *expected)
    schedule = schedule_of(entry)
    found = schedule.since(EARLY)
    listed = list(itertools.islice(found, max(len(entry.get(name, ())) for name in expected)))
    if "expected_utc" in entry:
        assert entry["expected_utc"] == [_text(each) for each in listed]
    if "expected_local" in entry:
        assert entry["expected_local"] == [_local(each, schedule) for each in listed]
    if entry.get("complete"):
        assert None is next(found, None)


def _local(at: datetime, schedule: Schedule) -> str:
    return at.astimezone(schedule.place).replace(tzinfo=None).isoformat()


def next_after(case: Case) -> None:
    """Check the next occurrence of a rule that began long ago. How long it takes is the subject of a benchmark."""
    needed = ("strictly_after", "expected")
    data = read(case.data, *LISTED, "tz", "gap", *needed, "budget_ms", required=needed)
    schedule = schedule_of(data)
    at = moment(data["strictly_after"])
    at = at.replace(tzinfo=schedule.place) if at.tzinfo is None else at
    found = schedule.next(at, after=at)
    assert data["expected"] == (None if found is None else _local(found, schedule))


def invalid_rules(case: Case) -> None:
    """Check that a rule is refused or accepted, or that a repeated part counts once."""
    data = read(case.data, "rrule", "dtstart", "tz", "why", "expect", required=("rrule", "expect"))
    word(data["expect"], RULES)(data)


def _check_refused(data: Mapping[str, Any]) -> None:
    with pytest.raises(ScheduleError):
        schedule_of(data)


def _check_distinct(data: Mapping[str, Any]) -> None:
    listed = list(itertools.islice(schedule_of(data).since(EARLY), 100))
    assert sorted(set(listed)) == listed
    assert listed


RULES: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "reject": _check_refused,
    "accept": _check_distinct,
    "accept_deduplicated": _check_distinct,
}
"""The outcomes of a rule."""
