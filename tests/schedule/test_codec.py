"""A refresh policy is kept as data that is read back exactly, or refused with the key that is wrong."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.recurring import policy_document
from redrive.errors import ScheduleError
from redrive.schedule import Action, CronExpression, Exhausted, Gap, RecurrenceRule, RefreshPolicy, Schedule, Strategy

TEXTS = st.one_of(
    st.text(),
    st.text('"\\;.,*`“”\n\r\t \u2028\u00a0{}u1aé', max_size=12),
    st.sampled_from(["broken; give up after 1 second", "the", "a\nGive up", "\\u{22}", "end.", "**b**", ' " ']),
)
NAMES = TEXTS.filter(bool)
ACTIONS = st.one_of(
    st.builds(Action, st.sampled_from(["disable", "panic"])),
    st.builds(Action, st.sampled_from(["email", "notify"]), NAMES, st.one_of(st.none(), TEXTS)),
    st.builds(Action, st.just("mark"), NAMES, NAMES),
)
SPANS = st.timedeltas(timedelta(microseconds=1), timedelta(days=36_525))
TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1))  # noqa: DTZ001 - naive is the wall clock
SCHEDULES = st.builds(
    Schedule,
    start=TIMES,
    rules=st.sampled_from([(), (RecurrenceRule.parse("FREQ=DAILY;BYHOUR=6,16"), RecurrenceRule.parse("FREQ=HOURLY"))]),
    crons=st.sampled_from(
        [
            (CronExpression.parse("*/5 * * * *"),),
            (CronExpression.parse("@daily"), CronExpression.parse(" 0\t3 * * MON-FRI")),
        ]
    ),
    times=st.lists(TIMES, max_size=2).map(tuple),
    except_times=st.frozensets(TIMES, max_size=2),
    tz=st.sampled_from(["UTC", "Europe/Kyiv"]),
    gap=st.sampled_from(list(Gap)),
)
POLICIES = st.builds(
    RefreshPolicy,
    schedule=SCHEDULES,
    timeout=SPANS,
    delays=st.lists(SPANS, max_size=3).map(tuple),
    strategy=st.sampled_from(list(Strategy)),
    on_exhausted=st.sampled_from([*Exhausted, None]),
    give_up_after=st.one_of(st.none(), SPANS),
    catch_up=st.one_of(st.none(), SPANS),
    jitter=SPANS,
    on_give_up=st.lists(ACTIONS, max_size=3, unique=True).map(tuple),
)
DATA = RefreshPolicy.parse(
    'Refresh daily at noon; retry after 1 minute; give up after one week; mark the row with "stale"'
).to_dict()


@given(POLICIES)
def test_every_policy_is_read_back_from_its_data(policy: RefreshPolicy):
    """Policies survive JSON; spans are exact to the microsecond, and texts to the character."""
    data = json.loads(json.dumps(policy.to_dict()))

    assert policy == RefreshPolicy.from_dict(data)
    assert policy.to_dict() == data


@given(st.lists(ACTIONS, min_size=1, max_size=3, unique=True).map(tuple))
def test_every_action_is_read_back_from_its_sentence(actions: tuple[Action, ...]):
    """Texts that would be parsed as another action are quoted."""
    policy = RefreshPolicy(on_give_up=actions)

    assert policy == RefreshPolicy.parse(str(policy))


def test_a_quoted_text_may_contain_a_sentence():
    """Semicolons in a quoted text do not end the sentence."""
    action = Action("email", "customer", "broken; give up after 1 second")
    policy = RefreshPolicy(on_give_up=(action,))

    assert 'Email customer that "broken; give up after 1 second"' == str(policy).splitlines()[-1]
    assert policy == RefreshPolicy.parse(str(policy)) == RefreshPolicy.from_dict(policy.to_dict())


def test_defaults_are_written_too():
    """Defaults are stored, so that a policy does not change with the defaults of a later version."""
    assert {
        "version": 1,
        "schedule": None,
        "timeout": 600.0,
        "delays": [],
        "repeat_last": False,
        "strategy": "retry_align_planned",
        "on_exhausted": "give_up",
        "give_up_after": None,
        "give_up_since": "first_failure",
        "catch_up": None,
        "jitter": 0.0,
        "on_give_up": [],
    } == RefreshPolicy().to_dict()


def test_the_stored_text_of_a_policy_stays_byte_for_byte():
    """A database that an older version has written compares documents as texts."""
    policy = RefreshPolicy(
        schedule=Schedule(
            start=datetime(2026, 1, 31, 16, 30),  # noqa: DTZ001 - naive is the wall clock
            rules=["FREQ=DAILY;BYHOUR=6,16"],
            crons=["*/5 * * * *"],
            times=[datetime(2026, 2, 1, 8, 0, 0, 500)],  # noqa: DTZ001
            except_times=[datetime(2026, 2, 2), datetime(2026, 2, 1)],  # noqa: DTZ001
            tz="Europe/Kyiv",
            gap="skip",
        ),
        timeout="90s",
        delays=["0s", "5m", "1500ms"],
        strategy="planned_only",
        give_up_after="1w",
        give_up_since="last_success",
        catch_up="1h",
        jitter="30s",
        on_give_up=[Action("email", "customer", "it was disabled"), Action("disable")],
    )

    assert policy_document(policy) == (
        '{"catch_up":3600.0,"delays":[0.0,300.0,1.5],"give_up_after":604800.0,"give_up_since":"last_success",'
        '"jitter":30.0,"on_exhausted":"wait_next","on_give_up":[{"name":"email","text":"it was disabled",'
        '"to":"customer"},{"name":"disable","text":null,"to":null}],"repeat_last":false,"schedule":'
        '{"crons":["*/5 * * * *"],"except_times":["2026-02-01T00:00:00","2026-02-02T00:00:00"],"gap":"skip",'
        '"rules":["FREQ=DAILY;BYHOUR=6,16"],"start":"2026-01-31T16:30:00","times":["2026-02-01T08:00:00.000500"],'
        '"tz":"Europe/Kyiv"},"strategy":"planned_only","timeout":90.0,"version":1}'
    )


def changed(path: str, value: object) -> dict[str, Any]:
    """Return `DATA` with another value at a path."""
    data = json.loads(json.dumps(DATA))
    *steps, last = path.split(".")
    place = data
    for each in steps:
        place = place[int(each) if each.isdigit() else each]
    place[int(last) if last.isdigit() else last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 2, "policy.version: 2 is not 1"),
        ("version", True, "policy.version: Expected `int`, got `bool`"),
        ("sample", 5, "policy: Object contains unknown field `sample`"),
        ("timeout", None, r"policy.timeout: Expected `float \| str`, got `null`"),
        ("timeout", True, r"policy.timeout: Expected `float \| str`, got `bool`"),
        ("timeout", "an hour", "policy: timeout: a duration cannot contain 'a' here"),
        ("timeout", 1e300, "policy: a span of time is longer than a hundred years"),
        ("timeout", float("nan"), "policy: timeout: nan is not a duration"),
        ("timeout", -1, "policy: timeout: -1.0 is not a duration: it must be zero or more"),
        ("timeout", 0, "policy: timeout=.*the timeout must be positive"),
        ("delays", 5, "policy.delays: Expected `array`, got `int`"),
        ("delays.0", "x", "policy: delays: a duration cannot contain 'x' here"),
        ("strategy", 1, "policy.strategy: Expected `str`, got `int`"),
        ("strategy", "align", "policy: strategy is 'retry_align_planned', .*not 'align'"),
        ("on_exhausted", "giveup", "policy: on_exhausted is 'give_up', 'wait_next', not 'giveup'"),
        ("repeat_last", "no", "policy.repeat_last: Expected `bool`, got `str`"),
        ("schedule", [], r"policy.schedule: Expected `object \| null`, got `array`"),
        ("schedule.tz", "Mars/Olympus", "policy.schedule: 'Mars/Olympus' is not a time zone"),
        ("schedule.start", "noon", "policy.schedule.start: Invalid RFC3339 encoded datetime"),
        ("schedule.gap", "jump", "policy.schedule: gap is 'shift', 'skip', not 'jump'"),
        ("schedule.rules.0", "FREQ=NEVER", "policy.schedule: the recurrence rule 'FREQ=NEVER'"),
        ("schedule.crons", ["* *"], r"policy.schedule: the cron expression '\* \*'"),
        ("on_give_up.0.name", None, r"policy.on_give_up\[0\].name: Expected `str`, got `null`"),
        ("on_give_up.0.name", "call", r"policy.on_give_up\[0\]: there is no action 'call'"),
        ("on_give_up.0.to", 5, r"policy.on_give_up\[0\].to: Expected `str \| null`, got `int`"),
        ("on_give_up.0", {"name": "panic"}, r"policy.on_give_up\[0\]: Object missing required field `to`"),
    ],
)
def test_invalid_data_are_refused(path: str, value: object, message: str):
    """Errors name the key."""
    with pytest.raises(ScheduleError, match=message):
        RefreshPolicy.from_dict(changed(path, value))


def test_data_that_is_no_mapping_is_refused():
    """Such as the text of a policy."""
    with pytest.raises(ScheduleError, match="policy: Expected `object`, got `str`"):
        RefreshPolicy.from_dict("Refresh daily")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"strategy": "align"}, "strategy is 'retry_align_planned', 'retry_until_success', .*, not 'align'"),
        ({"on_exhausted": "giveup"}, "on_exhausted is 'give_up', 'wait_next', not 'giveup'"),
        ({"strategy": None}, "strategy is .*, not None"),
    ],
)
def test_an_unknown_value_is_refused(fields: dict[str, Any], message: str):
    """Errors for an unknown word list the known ones."""
    with pytest.raises(ScheduleError, match=message):
        RefreshPolicy(**fields)


def test_texts_are_converted_to_members():
    """Texts are converted to the member with that value."""
    schedule = Schedule(rules=(RecurrenceRule.parse("FREQ=DAILY"),), gap="skip")  # type: ignore[arg-type]
    policy = RefreshPolicy(schedule=schedule, strategy="planned_only", on_exhausted="wait_next")  # type: ignore[arg-type]

    assert (Strategy.PLANNED_ONLY, Exhausted.WAIT_NEXT, Gap.SKIP) == (
        policy.strategy,
        policy.on_exhausted,
        policy.schedule.gap,
    )
    assert all(type(each) is not str for each in (policy.strategy, policy.on_exhausted, policy.schedule.gap))


def test_an_unknown_gap_or_frequency_is_refused():
    """Errors list the valid values."""
    with pytest.raises(ScheduleError, match="gap is 'shift', 'skip', not 'jump'"):
        Schedule(rules=(RecurrenceRule.parse("FREQ=DAILY"),), gap="jump")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="rule.Freq, not 'DAILY'; RecurrenceRule.parse reads"):
        RecurrenceRule(freq="DAILY")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"delays": ["1s"], "repeat_last": "no"}, "repeat_last='no': write True or False"),
        ({"schedule": 7}, "schedule=7 is not a Schedule; RefreshPolicy.parse reads English"),
        ({"schedule": "every day"}, "schedule='every day' is not a Schedule; RefreshPolicy.parse reads English"),
        ({"on_give_up": Action("panic")}, "write a list of actions"),
        ({"on_give_up": ["panic"]}, "write a list of actions"),
        ({"on_give_up": [Action("panic"), Action("panic")]}, "has an action twice"),
    ],
)
def test_policies_that_cannot_be_stored_are_refused_at_once(given: dict[str, Any], problem: str):
    """Policies with parts of wrong types are refused when they are made, with a correct example."""
    with pytest.raises(ScheduleError, match=re.escape(problem)):
        RefreshPolicy(**given)


def test_a_list_of_actions_is_read_back_equal():
    """Actions may be given as a list; the policy keeps a tuple."""
    policy = RefreshPolicy(on_give_up=[Action("panic")])

    assert policy == RefreshPolicy.from_dict(policy.to_dict())
