"""The stored traceback of a failure is that of the standard library, and is made in less time."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from redrive.app.tasks.failures import failed


def _down() -> None:
    raise ConnectionError("bank is down")


def _from() -> None:
    try:
        _down()
    except ConnectionError as error:
        raise RuntimeError("no payment") from error


def _during() -> None:
    try:
        _from()
    except RuntimeError:
        _down()


def _hidden() -> None:
    try:
        _down()
    except ConnectionError:
        raise RuntimeError("no payment") from None


def _noted() -> None:
    error = ValueError("a", "b")
    error.add_note("invoice 7")
    raise error


def _unreadable() -> None:
    compile("1 +", "invoice.py", "exec")


def _several() -> None:
    try:
        _from()
    except RuntimeError as error:
        raise ExceptionGroup("payments", [error, KeyError(7)]) from error


def _repeated(times: int = 9) -> None:
    if times:
        _repeated(times - 1)
    _down()


def _circular() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


class _Empty(Exception):
    def __len__(self) -> int:
        return 0


def _falsy() -> None:
    raise RuntimeError("no payment") from _Empty("cause")


RAISING = [_down, _from, _during, _hidden, _noted, _unreadable, _several, _repeated, _circular, _falsy]


@pytest.mark.parametrize("raising", RAISING, ids=lambda each: each.__name__)
def test_a_traceback_is_that_of_the_standard_library(raising: Callable[[], None]):
    """Chained, grouped and annotated exceptions, and those of a recursion, have the usual text, the second time too."""
    with pytest.raises(Exception) as caught:
        raising()
    expected = "".join(traceback.format_exception(caught.value))

    assert [expected, expected] == [failed(caught.value).traceback for _ in range(2)]


def test_equal_functions_of_two_files_have_their_own_lines():
    """A module that is a copy of another one appears under its own name."""
    for name in ("first.py", "second.py"):
        names: dict[str, Callable[[], None]] = {}
        exec(compile("def pay(): raise ConnectionError('bank is down')", name, "exec"), names)  # noqa: S102 - ours
        with pytest.raises(ConnectionError) as caught:
            names["pay"]()

        assert f'File "{name}", line 1, in pay' in failed(caught.value).traceback


def test_an_exception_that_was_never_raised_has_a_text():
    """A failure that is made from an exception without frames has the line of the exception."""
    assert "ValueError: no\n" == failed(ValueError("no")).traceback


def test_many_different_frames_are_not_kept(monkeypatch: pytest.MonkeyPatch):
    """The texts of frames are forgotten when there are too many."""
    monkeypatch.setattr("redrive.app.tasks.failures._FRAMES", 1)
    monkeypatch.setattr("redrive.app.tasks.failures._frames", kept := {})
    for raising in (_down, _hidden, _noted):
        test_a_traceback_is_that_of_the_standard_library(raising)

    assert 2 >= len(kept)
