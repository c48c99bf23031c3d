"""What is raised in the end: the last error, unchanged, with one note and its record."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
import weakref
from dataclasses import dataclass
from datetime import timedelta

import pytest

import redrive
from redrive.errors import Cancel, GiveUp, RetryAfter, Snooze
from redrive.policy import Backoff, Jitter, Policy, Retry
from redrive.policy.outcome import Record
from redrive.retrying import Hedge
from redrive.retrying.context import using
from tests.retrying.helpers import Busy, JumpingClock, Script

AT_ONCE = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0))
BY_SECONDS = Policy.parse("2 1s").with_(on=Busy)


def fail(function, *args):
    """Return the error that a call raises."""
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value


@pytest.mark.parametrize("policy", [AT_ONCE, AT_ONCE.with_(deadline="1h")], ids=["direct", "prepared"])
def test_the_last_error_is_raised_itself(policy):
    """Of three errors the third is raised, the same object, with its own cause and context."""
    cause, context = ValueError(), KeyError()
    errors = [Busy(1), Busy(2), Busy(3)]
    errors[2].__cause__, errors[2].__context__ = cause, context

    raised = fail(redrive.retry(policy)(Script(*errors)))

    assert raised is errors[2]
    assert (cause, context) == (raised.__cause__, raised.__context__)


@pytest.mark.case("isolation.07")
def test_raise_from_keeps_its_cause():
    """With `raise X from Y` the cause stays Y, not the error of an earlier attempt."""
    cause = ValueError()

    def call():
        raise Busy from cause

    assert cause is fail(redrive.retry(AT_ONCE)(call)).__cause__


@pytest.mark.parametrize("policy", [AT_ONCE, AT_ONCE.with_(deadline="1h")], ids=["direct", "prepared"])
def test_errors_of_attempts_are_not_chained(policy):
    """Errors do not get the error of the attempt before as their context."""
    raised = fail(redrive.retry(policy)(Script(Busy(1), Busy(2), Busy(3))))

    assert raised.__context__ is None


def test_a_context_of_the_caller_stays():
    """Errors of a call inside an `except` clause have that error as context, as without redrive."""

    def call():
        try:
            {}["nothing"]
        except KeyError:
            redrive.retry(AT_ONCE)(Script(Busy()))()

    assert isinstance(fail(call).__context__, KeyError)


def test_the_note_has_attempts_time_and_reason(clock):
    """Notes contain attempts, time, the reason for giving up and the kinds of failures."""
    raised = fail(redrive.retry(BY_SECONDS)(Script(Busy(), TimeoutError(), Busy(), clock=clock, takes=0.25)))

    why = "TimeoutError is not one of the failures that this policy retries"
    assert [f"gave up after 2 attempts in 1.50 s: {why} (Busy, TimeoutError)"] == raised.__notes__

    raised = fail(redrive.retry(BY_SECONDS)(Script(Busy(), Busy(), Busy())))

    assert ["gave up after 3 attempts in 3.00 s: 3 of 3 attempts failed (Busy x3)"] == raised.__notes__


def test_the_note_is_printed_with_the_traceback():
    """Python prints the note below the error."""
    assert "gave up after 3 attempts in" in "".join(
        traceback.format_exception(fail(redrive.retry(AT_ONCE)(Script(Busy()))))
    )


def test_an_error_raised_again_and_again_keeps_one_note():
    """Error objects that are raised by many calls keep their own notes and that of the last call."""
    error = Busy()
    error.add_note("my own")
    retried = redrive.retry(AT_ONCE)(Script(error))
    for _ in range(3):
        fail(retried)

    assert ["my own", error.__retry__.note] == error.__notes__
    assert error.__retry__.inner is None


def test_the_record_contains_each_attempt(clock):
    """`__retry__` has each attempt with its time, failure and decision."""
    raised = fail(redrive.retry(BY_SECONDS)(Script(Busy("a"), Busy("b"), Busy("c"), clock=clock, takes=0.5)))
    record = raised.__retry__

    assert isinstance(record, Record)
    assert (3, "attempts", timedelta(seconds=4.5)) == (record.attempts, record.rule, record.elapsed)
    assert (timedelta(seconds=1), timedelta(seconds=2)) == record.delays
    assert [0, 1.5, 4] == [each.started_after.total_seconds() for each in record.timeline]
    assert {timedelta(seconds=0.5)} == {each.took for each in record.timeline}
    assert ["a", "b", "c"] == [each.failure.message for each in record.timeline]
    assert ("tests.retrying.helpers.Busy", "ERROR") == (
        record.timeline[0].failure.error_type,
        record.timeline[0].failure.reason,
    )
    assert Retry(timedelta(seconds=2), timedelta(seconds=2), "backoff") == record.timeline[1].decision
    assert "3 of 3 attempts failed" == record.timeline[2].decision.why


def test_the_record_is_the_same_by_either_way(clock):
    """Quick and full decisions leave the same record."""
    quick = redrive.retry(BY_SECONDS)
    thorough = redrive.retry(BY_SECONDS & BY_SECONDS)

    records = [fail(each(Script(Busy("a"), Busy("b"), Busy("c")))).__retry__ for each in (quick, thorough)]

    assert records[0]._replace(function="") == records[1]._replace(function="")


@dataclass(frozen=True)
class Frozen(Exception):
    """An exception that refuses attributes."""

    code: int


def test_an_error_without_attributes_gets_its_note():
    """Exceptions that refuse attributes get note and record like any other."""
    raised = fail(redrive.retry(AT_ONCE.with_(on=Frozen))(Script(Frozen(1), Frozen(2), Frozen(3))))

    assert (3, 1, 3) == (raised.code, len(raised.__notes__), raised.__retry__.attempts)


class Unspeakable(Busy):
    """An exception with a `__str__` that raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_broken_str_hides_nothing():
    """Errors with a broken `__str__` are retried and raised like any other."""
    script = Script(Unspeakable(), Unspeakable(), Unspeakable())

    raised = fail(redrive.retry(AT_ONCE)(script))

    assert 3 == script.calls
    assert isinstance(raised, Unspeakable)
    assert "RuntimeError" in raised.__retry__.timeline[0].failure.message


def test_the_traceback_leads_to_the_function():
    """Tracebacks are those of the last attempt: they end in the function, and each line can be shown."""

    def call():
        raise Busy

    frames = traceback.extract_tb(fail(redrive.retry(AT_ONCE)(call)).__traceback__)

    assert "call" == frames[-1].name
    assert "raise Busy" == frames[-1].line
    # A function that has not returned yet is called through the check of its result.
    assert "_rd_result = _rd_call()" in [frame.line for frame in frames[-3:-1]]


class Payload:
    """Something large that a frame holds."""


@pytest.mark.parametrize("failures", [2, 3], ids=["recovered", "given up"])
@pytest.mark.parametrize("policy", [AT_ONCE, AT_ONCE.with_(deadline="1h")], ids=["direct", "prepared"])
def test_calls_leave_no_reference_cycle(policy, failures, monkeypatch):
    """Calls leave no cycle of error, traceback and frame, and neither does their log."""
    # The handlers of pytest keep records.
    monkeypatch.setattr(logging.getLogger("redrive"), "propagate", False)
    kept = []

    @redrive.retry(policy)
    def call():
        payload = Payload()
        kept.append(weakref.ref(payload))
        if len(kept) <= failures:
            raise Busy

    def go():
        try:
            call()
        except Busy:
            assert failures == len(kept)

    gc.collect()
    gc.disable()
    try:
        go()
        assert [None] * 3 == [each() for each in kept]
    finally:
        gc.enable()


@pytest.mark.parametrize("policy", [BY_SECONDS, BY_SECONDS & BY_SECONDS], ids=["quick", "thorough"])
def test_a_wait_does_not_hold_the_error_before(clock, policy):
    """While a call waits, the error of the failed attempt and what its frames hold are gone already."""
    held = []

    def call():
        payload = Payload()
        held.append(weakref.ref(payload))
        raise Busy

    seen = []
    clock.sleep = lambda _: seen.append(held[-1]())
    fail(redrive.retry(policy)(call))

    assert [None, None] == seen


def test_the_signal_give_up_ends_at_once():
    """GiveUp ends the call at once, also as the cause of an error."""
    bare, wrapped = Script(GiveUp("stolen card")), Script(Busy())

    def call():
        wrapped.calls += 1
        raise Busy from GiveUp("stolen card")

    assert isinstance(fail(redrive.retry(AT_ONCE)(bare)), GiveUp)
    raised = fail(redrive.retry(AT_ONCE)(call))

    assert (1, 1) == (bare.calls, wrapped.calls)
    assert isinstance(raised, Busy)
    assert ("permanent", "stolen card") == (raised.__retry__.rule, raised.__retry__.why)


def test_the_signal_retry_after_dictates_the_wait(clock):
    """RetryAfter is a candidate whatever `on` is, and its delay is used without jitter."""
    script = Script(RetryAfter("15m"), RetryAfter(0.5), 42)
    policy = Policy(on=Busy, attempts=3, deadline=None, backoff=Backoff.constant(60), jitter=Jitter.full)

    assert 42 == redrive.retry(policy)(script)()
    assert [900.0, 0.5] == clock.slept


@pytest.mark.parametrize("signal", [Snooze(5), Cancel()])
def test_the_other_signals_pass(signal):
    """Snooze and Cancel are no failures, and mean nothing in process: they pass at once."""
    script = Script(signal)

    assert signal is fail(redrive.retry(AT_ONCE.with_(on=Exception))(script))
    assert 1 == script.calls


def test_a_hint_of_the_error_is_a_floor(clock):
    """Errors with `retry_after` are not retried earlier; longer backoffs apply."""
    short, long = Busy(), Busy()
    short.retry_after, long.retry_after = 0.25, 7
    policy = Policy.parse("2 1s").with_(on=Busy)

    redrive.retry(policy)(Script(short, long, 42))()

    assert [1.0, 7.0] == clock.slept


def test_a_hint_beyond_the_deadline_ends_at_once(clock):
    """Hints beyond the deadline end the call at once, without a wait."""
    error = Busy()
    error.retry_after = 60
    script = Script(error)

    raised = fail(redrive.retry(Policy(on=Busy, deadline=1))(script))

    assert ([], 1, "deadline") == (clock.slept, script.calls, raised.__retry__.rule)


CONTROL_FLOW = [KeyboardInterrupt, SystemExit, GeneratorExit]


@pytest.mark.parametrize("kind", CONTROL_FLOW)
@pytest.mark.parametrize(
    "policy",
    [
        AT_ONCE.with_(on=BaseException),
        AT_ONCE.with_(on=BaseException, deadline="1h"),
        AT_ONCE.with_(on=lambda error: not isinstance(error, ValueError)),
    ],
    ids=["all", "prepared", "all but one"],
)
def test_control_flow_passes(policy, kind):
    """Control-flow exceptions pass at once, whatever `on` is, without a note."""
    script = Script(kind())
    with pytest.raises(kind) as caught:
        redrive.retry(policy)(script)()

    assert 1 == script.calls
    assert not hasattr(caught.value, "__notes__")


def test_an_interrupted_wait_ends_the_call(clock):
    """Interrupts during a wait pass, and no attempt follows."""
    script = Script(Busy())

    def interrupt(_seconds):
        raise KeyboardInterrupt

    clock.sleep = interrupt
    with pytest.raises(KeyboardInterrupt):
        redrive.retry(BY_SECONDS)(script)()

    assert 1 == script.calls


def test_errors_of_a_predicate_are_raised():
    """Errors in a classifier or in `on_result` are raised."""

    def broken(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        redrive.retry(AT_ONCE.with_(on=broken))(Script(Busy()))()
    with pytest.raises(ZeroDivisionError):
        AT_ONCE.with_(on_result=broken).outcome(Script(1))


def test_the_wrapper_leaves_no_exception_being_handled():
    """After a call nothing is being handled: `sys.exception` is as before."""
    redrive.retry(AT_ONCE)(Script(Busy(), 1))()

    assert (None, None, None) == sys.exc_info()


def raising(name):
    """Return a class of exceptions with an attribute that raises when it is read."""
    return type(f"Raising{name.strip('_').title()}", (Exception,), {name: property(lambda _: {}[name])})


class Hostile(Exception):
    """An exception that raises for each attribute that it does not have."""

    def __getattr__(self, name):
        raise RuntimeError(name)


class Unnoted(Exception):
    """An exception with notes of another type."""

    __notes__ = None


def of_metaclass(**methods):
    """Return a class of exceptions with a metaclass that has methods of its own."""
    return type("Meta", (type,), {"__hash__": type.__hash__, **methods})("OfMeta", (Exception,), {})


def broken(*_):
    """Raise as a broken method."""
    raise KeyError("broken")


class Seconds(float):
    """A number that cannot be compared."""

    __lt__ = broken


#: Classes that are odd by themselves, and not by an attribute of their instances.
CLASSES = {
    "unhashable": of_metaclass(__hash__=None),
    "hash raises": of_metaclass(__hash__=broken),
    "equality raises": of_metaclass(__eq__=broken),
    "module None": type("Nowhere", (Exception,), {"__module__": None}),
    "module 3": type("Nowhere", (Exception,), {"__module__": 3}),
    "retry_after": type("Asking", (Exception,), {"retry_after": Seconds(1)}),
    "hint": type("Hinting", (Exception,), {"hint": Seconds(1)}),
}
ODD = [
    *map(
        raising,
        (
            "hint",
            "retry_after",
            "__notes__",
            "__retry__",
            "__cause__",
            "__context__",
            "__traceback__",
            "code",
            "__dict__",
        ),
    ),
    *(Hostile, Unnoted, Frozen, Unspeakable),
]


def ways(policy, function):
    """Return the ways to call a function under a policy; each raises the last error."""

    async def afunction():
        function()

    def block():
        for attempt in policy:
            with attempt:
                function()

    @redrive.retry(policy)
    def generator():
        function()
        yield

    hedged = policy.with_(idempotent=True, hedge=Hedge(after="1h"))
    truncated = policy.with_(over_deadline="truncate", deadline="1s", backoff=Backoff.constant(2))
    return {
        "decorated": redrive.retry(policy)(function),
        "nested": redrive.retry(policy)(redrive.retry(policy)(function)),
        "nested once": redrive.retry(policy)(redrive.retry(policy.with_(idempotent=False))(function)),
        "call": lambda: policy.call(function),
        "outcome": lambda: policy.outcome(function).unwrap(),
        "truncated": lambda: truncated.call(function),
        "block": block,
        "generator": lambda: list(generator()),
        "async": lambda: asyncio.run(redrive.retry(policy)(afunction)()),
        "aoutcome": lambda: asyncio.run(policy.aoutcome(afunction)).unwrap(),
        "hedged": lambda: asyncio.run(hedged.acall(afunction)),
        "not matched": lambda: policy.with_(on=OSError).call(function),
    }


@pytest.mark.parametrize("logged", [True, False], ids=["logged", "silent"])
@pytest.mark.parametrize("kind", ODD, ids=lambda kind: kind.__name__)
def test_an_attribute_that_raises_does_not_replace_the_error(kind, logged, caplog):
    """An error with attributes that raise is retried and raised as any other, in each form of a call."""
    caplog.set_level(logging.DEBUG if logged else logging.CRITICAL, "redrive")

    def function():
        raise kind("real")

    with using(clock=JumpingClock()):
        found = {name: type(fail(way)) for name, way in ways(AT_ONCE.with_(on=kind), function).items()}

    assert dict.fromkeys(found, kind) == found


ANY = AT_ONCE.with_(on=Exception)


@pytest.mark.parametrize("logged", [True, False], ids=["logged", "silent"])
@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_an_odd_class_does_not_replace_the_error(kind, logged, caplog):
    """An error of an odd class is retried and raised as any other, alone and as the cause of another."""
    caplog.set_level(logging.DEBUG if logged else logging.CRITICAL, "redrive")
    calls = []

    def function():
        calls.append(1)
        raise kind("real")

    def chained():
        try:
            function()
        except kind as error:
            raise Busy from error

    with using(clock=JumpingClock()):
        for name, way in ways(ANY, function).items():
            calls.clear()
            assert type(fail(way)) is kind
            # The jitter decides if a wait is truncated.
            assert len(calls) == {"not matched": 1, "hedged": 6, "truncated": len(calls)}.get(name, 3)
        assert Busy is type(fail(redrive.retry(ANY)(chained)))


# asyncio itself asks for the class of an exception, and waits for ever if that raises.
@pytest.mark.parametrize("logged", [True, False], ids=["logged", "silent"])
@pytest.mark.parametrize("form", ["decorated", "nested", "call", "outcome", "truncated", "block", "generator"])
def test_a_class_that_raises_does_not_replace_the_error(form, logged, caplog):
    """An error that does not tell its class is retried and raised as any other, and its retries are logged."""
    kind = raising("__class__")
    caplog.set_level(logging.DEBUG if logged else logging.CRITICAL, "redrive")

    def function():
        raise kind("real")

    with using(clock=JumpingClock()), pytest.raises(kind):
        ways(AT_ONCE.with_(on=kind), function)[form]()
    assert not [each for each in caplog.records if "the sink" in each.getMessage()]


def test_a_cycle_of_causes_ends():
    """Signals are looked for in a chain of causes that ends in itself."""
    one, two = Busy(1), Busy(2)
    one.__cause__, two.__cause__ = two, one

    assert one is fail(redrive.retry(AT_ONCE)(Script(one, one, one)))


def test_a_stream_with_odd_notes_raises_its_own_error():
    """The note of a stream that had yielded an item does not replace its error either."""

    @redrive.retry(AT_ONCE.with_(on=Unnoted))
    def stream():
        yield 1
        raise Unnoted("real")

    assert Unnoted is type(fail(lambda: list(stream())))
