"""Generators: until the first item, from the beginning, or from where they were."""

from __future__ import annotations

import inspect

import pytest

import redrive
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy
from tests.retrying.helpers import Busy, Other, Script, checkpoint

AT_ONCE = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0))
SECONDS = AT_ONCE.with_(deadline=None, backoff=Backoff.constant(1), jitter="none")


class ScriptedGenerator:
    """A generator function that plays one list a call: an exception is raised, any other value is yielded.

    Attributes:
        starts: the arguments of each call.
        closed: how many of the generators have run to their end or were closed.
    """

    def __init__(self, *attempts):
        self.starts = []
        self.closed = 0
        self._attempts = attempts

    def play(self, *args, **kwargs):
        """As a generator function; its return value is the number of the call."""
        self.starts.append((args, kwargs))
        number = len(self.starts)
        try:
            for item in self._attempts[number - 1]:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed += 1
        return number

    async def aplay(self, *args, **kwargs):
        """As an async generator function."""
        self.starts.append((args, kwargs))
        number = len(self.starts)
        try:
            for item in self._attempts[number - 1]:
                await checkpoint()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed += 1

    def resumable(self, *args, after=0, **kwargs):
        """As a generator function that takes up after an item."""
        yield from self.play(*args, after=after, **kwargs)


def read(generator):
    """Return the items, and the error at the end, if there is one."""
    items = []
    try:
        items.extend(generator)  # keeps what came before an error
    except Exception as error:  # noqa: BLE001 - it is compared
        return items, error
    return items, None


async def aread(generator):
    """Return the items of an async generator, and the error at the end."""
    items = []
    try:
        async for item in generator:
            items.append(item)  # noqa: PERF401 - what came before an error counts
    except Exception as error:  # noqa: BLE001 - it is compared
        return items, error
    return items, None


@pytest.fixture(params=["def", "asyncio", "trio"])
def played(request):
    """Plays a tape to its end, in each colour: items and error."""

    def play(function, policy=AT_ONCE, **kwargs):
        retry = redrive.retry(policy, **kwargs)
        if request.param == "def":
            return read(retry(function.play)())
        return request.getfixturevalue("runner")(request.param, aread, retry(function.aplay)())

    return play


@pytest.fixture
def runner():
    """Runs a coroutine function under a library."""
    import asyncio

    import trio

    return lambda library, main, *args: trio.run(main, *args) if library == "trio" else asyncio.run(main(*args))


def test_a_generator_that_has_yielded_nothing_is_retried(played):
    """By default a generator is tried again as long as it has yielded nothing."""
    function = ScriptedGenerator([Busy()], [Busy()], [1, 2])

    assert ([1, 2], None) == played(function)
    assert 3 == function.closed


def test_the_first_item_commits(played):
    """By default an error after the first item passes, and a note names what would retry it."""
    error = Busy()
    function = ScriptedGenerator([Busy()], [1, error], [9])

    assert ([1], error) == played(function)
    assert 2 == len(function.starts)
    (note,) = error.__notes__
    assert note.startswith("not retried: the generator had yielded an item")
    assert 'generator="restart"' in note


def test_an_error_that_is_not_retried_anyway_has_no_note(played):
    """Errors after the first item that the policy does not name pass as they are."""
    error = Other()
    function = ScriptedGenerator([1, error])

    assert ([1], error) == played(function)
    assert not hasattr(error, "__notes__")


def test_restart_yields_everything_again(played):
    """With `restart` a failed generator is started from the beginning, and repeats its items."""
    assert ([1, 1, 2], None) == played(ScriptedGenerator([1, Busy()], [1, 2]), generator="restart")


def test_another_failure_passes(played):
    """Errors that `on` does not name end the generator in every mode."""
    error = Other()

    assert ([1], error) == played(ScriptedGenerator([1, error], [9]), generator="restart")


def test_an_empty_generator_stays_empty(played):
    """Empty generators end after one attempt."""
    function = ScriptedGenerator([], [9])

    assert ([], None) == played(function)
    assert 1 == len(function.starts)


def test_a_generator_that_keeps_failing_is_given_up(played):
    """After the last attempt the last error is raised with its note and record."""
    errors = [Busy(), Busy(), Busy()]
    items, error = played(ScriptedGenerator([1, errors[0]], [1, errors[1]], [1, errors[2]]), generator="restart")

    assert ([1, 1, 1], errors[2]) == (items, error)
    assert (3, "attempts", 1) == (error.__retry__.attempts, error.__retry__.rule, len(error.__notes__))


def test_between_attempts_a_generator_waits(played, clock):
    """Between attempts a generator waits for the policy's delays, on the clock in force."""
    assert ([1], None) == played(ScriptedGenerator([Busy()], [Busy()], [1]), SECONDS)
    assert [1.0, 1.0] == clock.slept


def test_a_truncated_wait_ends_with_the_error(played, clock):
    """With `over_deadline="truncate"` a generator waits to the deadline, and then raises its last error."""
    error = Busy()

    assert ([], error) == played(ScriptedGenerator([error], [9]), SECONDS.with_(deadline=0.5, over_deadline="truncate"))
    assert [0.5] == clock.slept


def test_disabled_generators_are_plain(played):
    """Errors pass at once where retries are disabled."""
    error = Busy()
    with redrive.disabled():
        assert ([], error) == played(ScriptedGenerator([error], [9]))


def test_resume_continues_after_the_last_item():
    """With `resume` the next attempt gets the key of the last item, and the first attempt gets none."""
    function = ScriptedGenerator([10, 20, Busy()], [Busy()], [30])
    mode = redrive.resume(lambda item: item + 1)

    assert ([10, 20, 30], None) == read(redrive.retry(AT_ONCE, generator=mode)(function.resumable)("x", size=2))
    assert [0, 21, 21] == [kwargs.pop("after") for _, kwargs in function.starts]
    assert [(("x",), {"size": 2})] * 3 == function.starts


def test_resume_names_its_parameter():
    """`resume` takes another parameter name, an explicit argument, and by default the item itself."""

    def rows(start, stop):
        starts.append(start)
        for row in range(start, stop):
            yield row
            if row % 3 == 2:
                raise Busy

    starts = []
    retried = redrive.retry(AT_ONCE.with_(attempts=9), generator=redrive.resume(into="start"))(rows)

    assert [0, 1, 2, 2] == read(retried(0, 9))[0][:4]
    assert [0, 2] == starts[:2]


def test_resume_of_an_async_generator(run):
    """Async generators with any keyword can be resumed, too."""
    function = ScriptedGenerator([1, 2, Busy()], [3, 4])

    assert ([1, 2, 3, 4], None) == run(aread, redrive.retry(AT_ONCE, generator=redrive.resume())(function.aplay)())
    assert [((), {}), ((), {"after": 2})] == function.starts


def rows(size):
    """Yield rows after the given one."""
    yield size


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("sometimes", "use until_first_item, restart or"),
        (redrive.resume(), "no parameter 'after'"),
        (redrive.resume(into="from_row"), "no parameter 'from_row'"),
    ],
)
def test_a_mode_that_cannot_work_is_refused(mode, message):
    """Unknown modes, and missing parameters, are refused at decoration."""
    with pytest.raises(PolicyValueError, match=f"{__name__}.rows: .*{message}"):
        redrive.retry(AT_ONCE, generator=mode)(rows)


@pytest.mark.parametrize("field", [{"attempt_timeout": 5}, {"on_result": bool}])
def test_options_that_generators_do_not_support_are_refused(field):
    """Attempt timeouts and result predicates are refused for generators."""
    with pytest.raises(PolicyValueError, match=f"{next(iter(field))} has no meaning for a generator"):
        redrive.retry(AT_ONCE.with_(**field))(rows)


def test_resume_shows_itself():
    """Modes show their parameter in their repr."""
    assert "resume(None, into='after')" == repr(redrive.resume())


def test_generator_functions_stay_generator_functions():
    """Decorated generator functions stay generator functions."""
    function = ScriptedGenerator()

    assert inspect.isgeneratorfunction(redrive.retry(AT_ONCE)(rows))
    assert inspect.isasyncgenfunction(redrive.retry(AT_ONCE)(function.aplay))
    assert "rows" == redrive.retry(AT_ONCE)(rows).__name__


def test_a_generator_starts_with_the_first_next(clock):
    """Retried generators start with the first `next`, and so does their time."""
    function = ScriptedGenerator([1])
    generator = redrive.retry(AT_ONCE.with_(deadline=5))(function.play)()
    clock.advance(100)

    assert [] == function.starts
    assert [1] == list(generator)


# ---------------------------------------------------------------------------------------------- the protocol inside


def echo():
    """Yield what is sent, or the name of what is thrown in; return how many there were."""
    count, got = 0, "ready"
    while got is not None:
        try:
            got = yield got
        except Busy as error:
            got = f"caught {error}"
        count += 1
    return count


async def aecho():
    """Echo what is sent, as an async generator."""
    got = "ready"
    while got is not None:
        try:
            got = yield got
        except Busy as error:
            got = f"caught {error}"


def collect(generator):
    """Return the value of `yield from`."""
    return (yield from generator)


@pytest.mark.parametrize("mode", ["restart", "until_first_item"])
def test_send_throw_and_return_reach_the_generator(mode):
    """Values sent, errors thrown in and the return value pass through."""
    generator = collect(redrive.retry(AT_ONCE, generator=mode)(echo)())

    assert "ready" == next(generator)
    assert "a" == generator.send("a")
    assert "caught b" == generator.throw(Busy("b"))
    assert "c" == generator.send("c")
    with pytest.raises(StopIteration) as stopped:
        next(generator)
    assert 4 == stopped.value.value


def test_asend_and_athrow_reach_the_generator(run):
    """`asend` and `athrow` reach the async generator."""

    async def main():
        generator = redrive.retry(AT_ONCE, generator="restart")(aecho)()
        got = [await anext(generator), await generator.asend("a"), await generator.athrow(Busy("b"))]
        with pytest.raises(StopAsyncIteration):
            await anext(generator)
        return got

    assert ["ready", "a", "caught b"] == run(main)


def test_an_error_of_the_consumer_is_not_retried():
    """Errors that the consumer throws in and that come back are not retried."""
    function = ScriptedGenerator([1, 2], [9])
    generator = redrive.retry(AT_ONCE, generator="restart")(function.play)()
    error = Busy()
    next(generator)

    with pytest.raises(Busy) as caught:
        generator.throw(error)
    assert caught.value is error
    assert 1 == len(function.starts)


def test_an_error_of_the_consumer_is_not_retried_in_async(run):
    """Errors that the consumer throws into an async generator are not retried."""
    function = ScriptedGenerator([1, 2], [9])

    async def main():
        generator = redrive.retry(AT_ONCE, generator="restart")(function.aplay)()
        await anext(generator)
        with pytest.raises(Busy):
            await generator.athrow(Busy())

    run(main)

    assert 1 == len(function.starts)


def test_an_error_that_the_generator_makes_of_it_is_its_own():
    """Errors that the generator raises in answer to the consumer's are retried."""

    def stream():
        starts.append(1)
        try:
            yield 1
        except Other:
            raise Busy from None
        yield 2

    starts = []
    generator = redrive.retry(AT_ONCE, generator="restart")(stream)()
    next(generator)

    assert 1 == generator.throw(Other())
    assert 2 == len(starts)


def test_an_error_that_was_handled_is_not_the_consumers_any_more():
    """Errors that the generator handled, and raises again later, are retried."""

    def stream():
        starts.append(1)
        held = None
        try:
            yield len(starts)
        except Busy as error:
            held = error
        yield "handled"
        if held is not None:
            raise held

    starts = []
    generator = redrive.retry(AT_ONCE, generator="restart")(stream)()
    next(generator)
    generator.throw(Busy())

    assert [2, "handled"] == list(generator)


def test_close_reaches_the_generator(run):
    """Closing ends the generator inside, sync and async."""
    function = ScriptedGenerator([1, 2])
    generator = redrive.retry(AT_ONCE, generator="restart")(function.play)()
    next(generator)
    generator.close()
    assert 1 == function.closed

    async def main():
        agenerator = redrive.retry(AT_ONCE, generator="restart")(ScriptedGenerator.aplay.__get__(function))()
        function.starts.clear()
        await anext(agenerator)
        await agenerator.aclose()

    run(main)
    assert 2 == function.closed


# ------------------------------------------------------------------------------------------------------------ around it


def test_a_generator_is_a_layer(run):
    """Below a retried generator an inner policy leaves the retrying to it, until the first item commits it."""
    script = Script(Busy())
    inner = redrive.retry(AT_ONCE)(script)

    @redrive.retry(AT_ONCE)
    def before():
        inner()
        yield 1

    @redrive.retry(AT_ONCE)
    async def abefore():
        inner()
        yield 1

    @redrive.retry(AT_ONCE)
    def after():
        yield 1
        inner()

    assert ([], Busy) == (read(before())[0], type(read(before())[1]))
    assert 6 == script.calls
    assert [] == run(aread, abefore())[0]
    assert 9 == script.calls
    assert [1] == read(after())[0]
    assert 12 == script.calls


def test_the_consumer_is_not_below_the_generator():
    """Between two items the consumer is not inside the retried call: it retries, and reads no deadline."""
    script = Script(Busy())

    @redrive.retry(AT_ONCE, generator="restart")
    def stream():
        assert redrive.deadline() is not None
        yield 1
        yield 2

    for _ in stream():
        assert redrive.deadline() is None
        with pytest.raises(Busy):
            redrive.retry(AT_ONCE)(script)()

    assert 6 == script.calls


def test_a_deadline_is_read_inside(clock):
    """Deadlines are those of the whole stream, on the clock in force, with the consumer's time."""

    @redrive.retry(AT_ONCE.with_(deadline=60), generator="restart")
    def stream():
        yield redrive.deadline().remaining
        yield redrive.deadline().remaining

    seen = []
    for left in stream():
        seen.append(left)
        clock.advance(20)

    assert [60.0, 40.0] == seen
