"""The drawing of the exception tree at the top of `redrive.errors` agrees with the classes."""

from __future__ import annotations

import inspect
import re

import pytest

from redrive import errors

BRANCH = re.compile(r"^(?P<indent>(?: {4}|[│ ] {3}|[├└]── )*)(?P<name>[A-Z]\w+)(?= |$)")


def drawn() -> dict[str, str | None]:
    """Each class of the drawing, with the class that it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (inspect.getdoc(errors) or "").splitlines():
        match = BRANCH.match(line)
        if match is None or not line.startswith("    "):
            continue
        depth = len(match["indent"]) // 4 - 1
        path = [*path[:depth], match["name"]]
        parents[match["name"]] = path[depth - 1] if depth else None
    return parents


def classes() -> dict[str, type[BaseException]]:
    """Each exception class of the package."""
    return {name: getattr(errors, name) for name in errors.__all__}


def test_the_drawing_shows_each_exception():
    """Drawing, module and `__all__` name the same classes."""
    assert set(drawn()) == set(classes()) == set(errors.__all__)


def test_all_is_sorted():
    """`errors.__all__` is sorted."""
    assert sorted(errors.__all__) == errors.__all__


def also(name: str) -> list[str]:
    """Return the second base of a class, if it is of this module, as the drawing names it behind the class."""
    found = re.search(rf"── {name} +\(also an? (\w+)\)", inspect.getdoc(errors) or "")
    return [found[1]] if found and found[1] in classes() else []


@pytest.mark.parametrize(("name", "parent"), drawn().items())
def test_the_drawing_shows_the_inheritance(name: str, parent: str | None):
    """Each class hangs where the drawing shows it."""
    own = [base.__name__ for base in classes()[name].__bases__ if base.__module__ == errors.__name__]

    assert ([parent, *also(name)] if parent else []) == own


@pytest.mark.parametrize(
    "name", [name for name in drawn() if issubclass(classes()[name], errors.RedriveError | errors.FlowInterrupt)]
)
def test_the_docstring_is_the_default_message(name: str):
    """Errors raised without a message show the first line of their docstring."""
    error = classes()[name]

    assert (error.__doc__ or "").splitlines()[0] == str(error())


def test_a_message_replaces_the_default():
    """Errors raised with a message show that message."""
    assert "job 7 is gone" == str(errors.JobNotFound("job 7 is gone"))


@pytest.mark.parametrize("delay", ["15m", 3])
def test_signals_without_a_reason_name_their_delay(delay: str | float):
    """`RetryAfter` and `Snooze` without a reason name their delay."""
    assert [f"retry after {delay}", f"snoozed for {delay}"] == [
        str(errors.RetryAfter(delay)),
        str(errors.Snooze(delay)),
    ]


def test_signals_keep_their_delay_and_reason():
    """Each signal keeps its delay and its reason for the history of the job."""
    signals = [errors.RetryAfter("1m", "busy"), errors.Snooze("1m", "too early")]

    assert [("1m", "busy"), ("1m", "too early")] == [(signal.delay, signal.why) for signal in signals]
    assert ["no such account", "not wanted"] == [errors.GiveUp("no such account").why, errors.Cancel("not wanted").why]


def test_a_name_that_is_no_error_is_an_attribute_error():
    """Errors that are loaded late do not hide a misspelt name, and `dir` shows them."""
    with pytest.raises(AttributeError, match="StorError"):
        _ = errors.StorError

    assert errors.__all__ == dir(errors)


def test_errors_of_durable_work_bear_the_name_of_the_package():
    """The qualified names of errors, which are stored, do not depend on the module that defines them."""
    assert {"redrive.errors"} == {kind.__module__ for kind in classes().values()}
