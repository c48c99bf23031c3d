"""Tests of the carets in `redrive.errors.PolicyError`."""

from __future__ import annotations

from redrive.errors import PolicySyntaxError, PolicyValueError


def test_the_caret_is_under_the_fault():
    """Messages have the problem, the text, and a caret under the fault with a valid form."""
    error = PolicySyntaxError.with_caret("10 5 s", 4, "there is a blank", "write 5s")

    assert "there is a blank\n    10 5 s\n        ^ write 5s" == str(error)


def test_the_parts_of_the_message_can_be_read():
    """Errors keep the text, the offset and the problem, for programs that draw them themselves."""
    error = PolicyValueError.with_caret("0 5s", 2, "nothing to delay", "leave it out")

    assert ("0 5s", 2, "nothing to delay") == (error.text, error.at, error.problem)
    assert isinstance(error, PolicyValueError)
    assert isinstance(PolicySyntaxError.with_caret("", 0, "empty", "write"), PolicySyntaxError)


def test_unprintable_characters_do_not_move_the_caret():
    """Tabs and line feeds in the text are drawn as one blank."""
    assert "bad\n    5s  x\n        ^ good" == str(PolicySyntaxError.with_caret("5s\t\nx", 4, "bad", "good"))


def test_an_error_without_a_text_has_its_message_as_problem():
    """Errors without a text have their whole message as problem."""
    error = PolicyValueError("attempts=0")

    assert ("", None, "attempts=0") == (error.text, error.at, error.problem)
