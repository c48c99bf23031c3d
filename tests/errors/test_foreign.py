"""Texts of exceptions that come from outside: their methods may raise anything."""

from __future__ import annotations

from redrive.errors.foreign import summary, trace


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
