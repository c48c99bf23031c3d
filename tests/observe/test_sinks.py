"""Sinks: the events that they receive, their managers around waits, and isolation of their failures."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import contextmanager

import pytest

import redrive
from redrive import observe
from redrive.observe import CallSucceeded
from redrive.observe.listeners import LISTENERS
from redrive.policy.duration import ZERO

EVENT = CallSucceeded(name="app.fetch", attempts=2, elapsed=ZERO, waited=ZERO)


class Log:
    """A sink that records its calls.

    Attributes:
        lines: ``enter``, ``exit`` in order."""

    def __init__(self):
        self.lines = []

    @contextmanager
    def __call__(self, event):
        """Record its entry and its exit as a manager."""
        self.lines.append("enter")
        try:
            yield
        finally:
            self.lines.append("exit")


def test_an_added_sink_is_called_until_it_is_removed():
    """Sinks receive events after `add` and none after `remove`, which may be repeated."""
    seen = []
    registration = observe.add(seen.append)
    observe.emit(EVENT)
    registration.remove()
    registration.remove()
    observe.emit(EVENT)

    assert [EVENT] == seen
    assert not LISTENERS


def test_a_registration_is_a_context_manager():
    """In a `with` statement a sink is called to the end of the block."""
    seen = []
    with observe.add(seen.append) as sink:
        observe.emit(EVENT)
        assert sink == seen.append
    observe.emit(EVENT)

    assert [EVENT] == seen


def test_a_decorated_sink_can_be_called():
    """`add` above a function leaves something that can be called like it."""
    seen = []

    @observe.add
    def sink(event):
        seen.append(event)

    sink.remove()
    sink(EVENT)

    assert [EVENT] == seen


def test_a_sink_that_is_added_twice_is_called_once():
    """Two registrations of one sink make one telling, until both are removed."""
    seen = []
    first, second = observe.add(seen.append), observe.add(seen.append)
    observe.emit(EVENT)
    first.remove()
    observe.emit(EVENT)
    second.remove()
    observe.emit(EVENT)

    assert [EVENT, EVENT] == seen
    assert not LISTENERS


def test_sinks_are_called_in_the_order_in_which_they_were_added():
    """Call the sink that was added first before the others."""
    order = []
    with observe.add(lambda event: order.append("a")), observe.add(lambda event: order.append("b")):
        observe.emit(EVENT)

    assert ["a", "b"] == order


def test_only_excludes_other_sinks():
    """Inside `only` its sinks are called, and the added ones are not."""
    everywhere, here = [], []
    with observe.add(everywhere.append), observe.only(here.append):
        observe.emit(EVENT)
        with observe.only():
            observe.emit(EVENT)

    assert ([], [EVENT]) == (everywhere, here)
    assert not LISTENERS


def test_only_holds_in_this_task_and_its_children():
    """Tasks started inside `only` call its sinks; concurrent tasks do not."""
    here = []

    async def main():
        called, go = asyncio.Event(), asyncio.Event()

        async def beside():
            await go.wait()
            observe.emit(EVENT)
            called.set()

        task = asyncio.create_task(beside())
        with observe.only(here.append):
            go.set()
            await called.wait()
            assert [] == here
            await asyncio.create_task(inside())
        await task

    async def inside():
        observe.emit(EVENT)

    asyncio.run(main())
    assert [EVENT] == here


def test_threads_add_and_remove_at_once():
    """After many threads have added and removed sinks, no sink is left."""

    def work():
        for _ in range(300):
            with observe.add(lambda event: None):
                observe.emit(EVENT)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    seen = []

    assert not LISTENERS
    with observe.add(seen.append):
        observe.emit(EVENT)
    assert [EVENT] == seen


def test_a_sink_must_be_callable():
    """Something that cannot be called is refused where it is added."""
    with pytest.raises(TypeError, match="'stdout' is no sink"):
        observe.add("stdout")
    with pytest.raises(TypeError, match="None is no sink"), observe.only(None):
        raise AssertionError
    assert not LISTENERS


# ----------------------------------------------------------------------------------------------------- around a wait


def test_a_manager_is_around_the_wait():
    """Enter the manager of a sink before the wait, and exit it afterwards."""
    log = Log()
    with observe.only(log):
        wait = observe.around(EVENT)
        assert [] == log.lines
        with wait:
            assert ["enter"] == log.lines
        with wait:
            """A second time nothing happens."""

    assert ["enter", "exit"] == log.lines


def test_without_a_wait_a_manager_is_entered_and_exited_at_once():
    """Without a wait after the event, the manager of a sink runs completely."""
    log = Log()
    with observe.only(log):
        observe.emit(EVENT)

    assert ["enter", "exit"] == log.lines


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, asyncio.CancelledError, ValueError])
def test_an_interrupted_wait_exits_each_manager_once(interruption):
    """Exceptions of a wait pass through all managers, the last one first, and none can suppress them."""
    order = []

    class Manager:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            order.append(f"enter {self.name}")

        def __exit__(self, kind, error, traceback):
            order.append(f"exit {self.name} {kind.__name__}")
            return True

    with (
        observe.only(lambda event: Manager("a"), lambda event: Manager("b")),
        pytest.raises(interruption),
        observe.around(EVENT),
    ):
        raise interruption

    name = interruption.__name__
    assert ["enter a", "enter b", f"exit b {name}", f"exit a {name}"] == order


@pytest.mark.parametrize("where", ["enter", "exit"])
def test_an_interruption_inside_a_manager_exits_all(where):
    """Threads that are interrupted while a sink works exit the managers that were entered."""
    log = Log()

    class InterruptedManager:
        def __enter__(self):
            if where == "enter":
                raise KeyboardInterrupt

        def __exit__(self, *error):
            raise KeyboardInterrupt

    with observe.only(log, lambda event: InterruptedManager()), pytest.raises(KeyboardInterrupt):
        observe.emit(EVENT)

    assert ["enter", "exit"] == log.lines


# ------------------------------------------------------------------------------------------------------------ failures


class FailingManager:
    """A manager that fails in the prescribed method."""

    def __init__(self, where):
        self.where = where
        self.entered = self.exited = 0

    def __enter__(self):
        self.entered += 1
        if self.where == "enter":
            raise RuntimeError("the collector is down")

    def __exit__(self, *error):
        self.exited += 1
        if self.where == "exit":
            raise RuntimeError("the collector is down")


def failing(where):
    """Return a sink that fails in the place of that name."""

    def sink(event):
        if where == "sink":
            raise RuntimeError("the collector is down")
        return {"a number": 7}.get(where) or FailingManager(where)

    return sink


@pytest.mark.parametrize("where", ["sink", "enter", "exit", "a number"])
def test_a_sink_that_fails_is_logged_once(where, caplog):
    """If a sink fails, no exception leaves it, the next sink is called, and the log has one line."""
    log = Log()
    with observe.only(failing(where), log):
        for _ in range(3):
            observe.emit(EVENT)

    assert ["enter", "exit"] * 3 == log.lines
    (record,) = caplog.records
    assert ("redrive.observe", logging.ERROR) == (record.name, record.levelno)
    text = "it returned 7" if where == "a number" else "the collector is down"
    assert text in record.getMessage()


def test_a_manager_that_was_not_entered_is_not_exited():
    """Managers with a failed enter are not exited."""
    broken = FailingManager("enter")
    with observe.only(lambda event: broken):
        observe.emit(EVENT)

    assert (1, 0) == (broken.entered, broken.exited)


def test_a_sink_does_not_receive_its_own_events():
    """Events that are emitted while a sink works reach no sink."""
    seen = []

    def sink(event):
        seen.append(event)
        observe.emit(event)

    with observe.add(sink):
        observe.emit(EVENT)

    assert [EVENT] == seen


def test_an_interrupt_in_a_sink_is_raised():
    """Sinks cannot suppress Ctrl-C."""

    def sink(event):
        raise KeyboardInterrupt

    with observe.only(sink), pytest.raises(KeyboardInterrupt):
        observe.emit(EVENT)


# ------------------------------------------------------------------------------------------------------------- logging


def test_the_log_sink_writes_one_line(caplog):
    """`log` writes the event as text to its channel, with the event itself as an attribute."""
    caplog.set_level(logging.DEBUG, logger="redrive.calls")
    with observe.only(observe.log):
        observe.emit(EVENT)

    (record,) = caplog.records
    assert ("redrive.calls", logging.INFO) == (record.name, record.levelno)
    assert ("app.fetch succeeded after 2 attempts in 0.00 s", EVENT) == (record.getMessage(), record.event)


def test_a_sink_can_be_left_out():
    """Leave out the sink that `but` names."""
    seen = []
    with observe.only(seen.append):
        observe.emit(EVENT, but=seen.append)
        observe.emit(EVENT, but=observe.log)

    assert [EVENT] == seen


def test_a_name_that_is_not_there_is_an_attribute_error():
    """Loading names late does not hide a misspelt one."""
    with pytest.raises(AttributeError, match="CallRetired"):
        _ = observe.CallRetired


def test_observe_is_a_public_name():
    """Access `redrive.observe` without a separate import."""
    assert redrive.observe is observe


class Carrier:
    """A sink that leaves something."""

    carries = True

    def __init__(self, left):
        self.left = left

    @contextmanager
    def __call__(self, event):
        """Leave it."""
        yield self.left


@pytest.mark.parametrize(("sinks", "kept"), [([], None), ([Carrier("a")], "a"), ([Carrier("a"), Carrier("b")], "b")])
def test_the_text_of_a_carrying_sink_is_available_inside(sinks, kept):
    """Inside the block the text of the last carrying sink is available; ordinary sinks leave none."""
    with observe.only(*sinks, Log()):
        assert bool(sinks) is observe.carried()
        around = observe.around(EVENT)
        with around:
            assert kept == around.kept


def test_a_sink_without_a_text_keeps_the_present_one():
    """None, or something that is no text, is not kept."""
    with observe.only(Carrier("a"), Carrier(None), Carrier(7)):
        around = observe.around(EVENT)
        with around:
            assert "a" == around.kept


def test_a_global_sink_carries_traces_in_all_tasks():
    """Sinks that were added for the whole process count in all tasks, until they are removed."""
    with observe.add(Carrier("a")):
        assert observe.carried()
    assert not observe.carried()
