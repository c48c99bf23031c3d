"""Texts of exceptions that come from outside: their methods may raise anything."""

from __future__ import annotations

from redrive.errors.foreign import (
    attribute,
    cause_of,
    context_of,
    is_a,
    mark_of,
    notes_of,
    set_attribute,
    set_context,
    summary,
    trace,
)


class UnreadableError(Exception):
    """An exception that raises whatever it is asked."""

    def __getattribute__(self, name: str) -> object:
        """Raise what no caller expects."""
        raise ZeroDivisionError(name)

    def __str__(self) -> str:
        """Raise too."""
        raise SystemExit


def raised(error: Exception) -> Exception:
    """Raise an exception and catch it, so that it has a traceback."""
    try:
        raise error  # noqa: TRY301 - for its traceback
    except Exception as caught:  # noqa: BLE001 - it was just raised
        return caught


def test_an_exception_is_described_by_its_class_and_text():
    """Exceptions are described by class and text, and by the class alone if the text is empty."""
    assert ["ValueError: odd", "ValueError"] == [summary(ValueError("odd")), summary(ValueError())]


def test_an_exception_without_a_readable_text_is_described_by_its_class():
    """If the text cannot be read, the description names the class and the error of its method."""
    assert "UnreadableError: <no message: SystemExit in UnreadableError.__str__>" == summary(UnreadableError())


def test_a_traceback_names_the_places():
    """It is that of the standard library."""
    text = trace(raised(ValueError("odd")))

    assert text.startswith("Traceback (most recent call last):")
    assert text.endswith("ValueError: odd")
    assert "in raised" in text


def test_a_traceback_that_cannot_be_formatted_still_names_the_places():
    """Tracebacks that cannot be formatted still name the places, read from the frames."""
    text = trace(raised(UnreadableError()))

    assert "in raised" in text
    assert text.endswith("UnreadableError: <no message: SystemExit in UnreadableError.__str__>")


def test_an_attribute_that_raises_counts_as_missing():
    """The default stands for an attribute that is missing, and for one that raises when it is read."""
    assert [None, 7] == [attribute(ValueError(), "odd"), attribute(UnreadableError(), "args", 7)]
    assert ("odd",) == attribute(ValueError("odd"), "args")


def test_an_attribute_that_cannot_be_set_is_left_out():
    """Attributes are set where the class allows it, and left out where a property has no setter."""

    class Fixed(Exception):
        code = property(lambda _: 5)

    error = Fixed()
    set_attribute(error, "code", 6)
    set_attribute(error, "odd", 6)

    assert (5, 6) == (error.code, error.odd)


def test_the_class_of_an_exception_is_read_without_its_methods():
    """The class is that of the interpreter, also if ``__class__`` raises."""
    assert is_a(UnreadableError(), (OSError, UnreadableError))
    assert not is_a(UnreadableError(), OSError)


def test_causes_and_contexts_are_read_without_the_methods_of_a_class():
    """Cause and context are those that Python has set, also if a property with their name raises."""
    error, cause, context = UnreadableError(), ValueError(), KeyError()
    BaseException.__setattr__(error, "__cause__", cause)
    set_context(error, context)

    assert (cause, context) == (cause_of(error), context_of(error))


def test_notes_of_another_type_count_as_none():
    """Notes are a new list; there are none if the attribute holds another type, or raises."""
    noted, odd = ValueError(), ValueError()
    noted.add_note("one")
    odd.__notes__ = None

    assert [["one"], [], [], []] == [notes_of(each) for each in (noted, odd, ValueError(), UnreadableError())]


def test_a_mark_is_read_from_any_exception():
    """What was stored on an exception is read again, whatever its class does with attributes."""
    error = UnreadableError()
    before = mark_of(error, "mark")
    set_attribute(error, "mark", 3)

    assert (None, 3) == (before, mark_of(error, "mark"))
