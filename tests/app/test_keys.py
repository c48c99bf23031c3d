"""Keys in options: texts, or functions of the arguments."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App
from redrive.engine.records import Hold, KeyUntil
from redrive.errors import ConfigurationError, DuplicateJob, PolicyError
from redrive.testing import drain


@pytest.fixture
def send(app: App):
    """Return a task with two arguments."""

    @app.task(queue="mail")
    def send(to: str, text: str = "") -> str:
        return text

    return send


def test_a_key_can_be_made_of_the_arguments(send):
    """Keys, idempotency keys and partitions may be functions of the arguments of each call."""
    calls = send.options(
        key=lambda to, text="": f"key {to}",
        idempotency_key=lambda to, text="": f"{to} {text}",
        partition=lambda to, text="": to,
    )
    one, two, again = calls.enqueue_many([("ann", "1"), ("bob", "1"), ("ann", "1")])
    record = one.record

    assert ("key ann", KeyUntil.END, "ann") == (record.key, record.key_until, record.partition)
    assert (one.id, True, True, False) == (again.id, one.created, two.created, again.created)


def test_a_conflict_is_an_error_or_the_existing_job(send):
    """By default a key that is held raises, and names the holder; with "existing" the holder is the answer."""
    first = send.options(key="u").enqueue("ann")
    with pytest.raises(DuplicateJob) as refused:
        send.options(key="u").enqueue("bob")
    second = send.options(key="u", on_conflict="existing").enqueue("bob")
    third = asyncio.run(send.options(key="u", on_conflict="existing").aenqueue("bob"))

    assert first.id == refused.value.job_id == second.id == third.id
    assert [True, False, False] == [first.created, second.created, third.created]


def test_options_add_up(send):
    """Options that are not given stay as they were."""
    calls = send.options(key="u", key_until="start").options(priority=3)

    record = calls.enqueue("a").record
    assert ("u", KeyUntil.START, 3) == (record.key, record.key_until, record.priority)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"key_until": "finish"}, "key_until is 'start' or 'end', not 'finish'"),
        ({"on_conflict": "bounce"}, "on_conflict is 'raise' or 'existing', not 'bounce'"),
    ],
)
def test_an_unknown_option_value_is_refused(send, wrong, message):
    """Unknown words are refused in options()."""
    with pytest.raises(ConfigurationError, match=message):
        send.options(**wrong)


@pytest.mark.parametrize("wrong", [{"on_conflict": "existing"}, {"key_until": "start"}])
def test_the_rules_of_a_key_need_a_key(send, wrong):
    """They may be given before the key; a job without one is refused."""
    calls = send.options(**wrong)
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))}= is about jobs of one key, and there is none"):
        calls.enqueue("ann")

    assert calls.options(key="u").enqueue("ann").record.key == "u"


@pytest.mark.parametrize("key", ["", lambda to: "", lambda to: 7], ids=["empty", "makes empty", "makes 7"])
def test_a_key_is_a_text_that_is_not_empty(send, key):
    """Empty keys, and functions that return no text, are refused at the enqueue."""
    with pytest.raises(ConfigurationError, match="send: (key|the result of the function key=) must be a text"):
        send.options(key=key).enqueue("ann")


def test_a_burst_is_one_job(app: App, send):
    """Debounced calls are one job with the last arguments; earlier options hold."""
    calls = send.options(priority=2).debounce(lambda to, text="": to, quiet="2s", at_most="10s")
    first = calls.enqueue("ann", "1")
    app.clock.advance("1s")
    second = calls.enqueue("ann", text="2")
    other = calls.enqueue("bob", "3")

    assert (first.id, Hold.DEBOUNCE, 2) == (second.id, second.record.hold, second.record.priority)
    assert other.created
    drain(app)
    assert ("2", "3") == (first.result(0), other.result(0))


def test_an_invalid_debounce_is_refused(send):
    """``at_most`` must not be shorter than ``quiet``, and both must be durations."""
    with pytest.raises(ConfigurationError, match="at_most must not be shorter"):
        send.debounce("u", quiet="5s", at_most="4s")
    with pytest.raises(PolicyError):
        send.debounce("u", quiet="soon", at_most="4s")
