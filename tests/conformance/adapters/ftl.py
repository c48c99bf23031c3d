"""Adapters for ``ftl.json``: durations, directives, their meaning and their effect.

FTL's readings and error texts come from strict mode, ``Policy.parse(text, strict=True)`` and `redrive.policy.ftl` below
it. Every text that strict mode accepts, redrive's own reading must accept too, with the same meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redrive.errors import PolicySyntaxError, PolicyValueError
from redrive.policy import Failure, GiveUp, History, Policy, Retry, ftl, parse_duration
from tests.conformance.adapters.policies import START
from tests.conformance.adapters.vocabulary import demand, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.conformance.loading import Case

CONTEXTS = {
    "at the end of the text": "",
    "inside a schema file, where a newline follows": "\n",
}
"""The declaration around a directive, and the text after it: FTL reads a number only if a blank follows."""

DAY = 86_400
FAR = 64
"""Retries after which every backoff that doubles from a second has come to its maximum."""

ANY_FAILURE = Failure(("builtins.Exception",), "it failed")


def duration_parse(case: Case) -> None:
    """Check the seconds of a duration, or the reason why it is refused."""
    data = read(case.data, "input", "seconds", "error", required=("input",))
    demand(data, "seconds", "error")
    if data.get("error") is not None:
        assert data["error"] == _refusal(lambda: ftl.parse_duration(data["input"]))
        return
    assert data["seconds"] == ftl.parse_duration(data["input"]).total_seconds()
    if data["input"]:  # the empty text is zero for FTL and an error for us
        assert data["seconds"] == parse_duration(data["input"]).total_seconds()


def _refusal(read_: Callable[[], object]) -> str | None:
    """Return the text of the error with which a text is refused, if it is."""
    try:
        read_()
    except (PolicySyntaxError, PolicyValueError) as error:
        return str(error)
    return None


def retry_directive(case: Case) -> None:
    """Check the fields of a directive, or which of FTL's two steps refuses it, with what text."""
    messages = ("go_parser_message", "schema_parser_message_at_end_of_text")
    outcomes = ("parsed", "params", "validation_errors", "parse_error")
    data = read(case.data, "directive", "context", *outcomes, *messages, required=("directive",))
    text = data["directive"] + word(data.get("context") or "at the end of the text", CONTEXTS)
    given = {name: value for name, value in data.items() if value is not None}
    if given.get("parse_error"):
        _check_refused_shape(text, *(given.get(name) for name in messages))
        return
    demand(given, "parsed", "validation_errors", "params")
    if "parsed" in given:
        assert read(given["parsed"], *_as_written(text)) == _as_written(text)
    if "validation_errors" in given:
        assert given["validation_errors"] == ftl.parse(text).problems()
        refusal = "; ".join(given["validation_errors"]) or None
        assert refusal == _refusal(lambda: Policy.parse(text, strict=True))
    if "params" in given:
        policy = Policy.parse(text, strict=True)
        found = _parameters(policy)
        assert read(given["params"], *found) == {name: found[name] for name in given["params"]}
        assert policy == Policy.parse(text)


def _check_refused_shape(text: str, go_message: str | None, schema_message: str | None) -> None:
    with pytest.raises(PolicySyntaxError) as refused:
        Policy.parse(text, strict=True)
    given = {"go": ftl.go_message(refused.value), "schema": str(refused.value)}
    expected = {"go": go_message, "schema": schema_message}
    assert {name: message for name, message in expected.items() if message} == {
        name: message for name, message in given.items() if expected[name]
    }


def _as_written(text: str) -> dict[str, Any]:
    written = ftl.parse(text)
    return {
        "count": written.count,
        "min_backoff": written.minimum,
        "max_backoff": written.maximum,
        "catch": written.catch,
    }


def _parameters(policy: Policy) -> dict[str, Any]:
    delays = policy.delays(FAR)
    return {"count": policy.retries, "min_backoff_s": delays[0], "max_backoff_s": delays[-1]}


def retry_constants(case: Case) -> None:
    """Check the defaults and limits, each as strict mode shows it."""
    data = read(case.data, *CONSTANTS, "history")
    measured = {name: word(name, CONSTANTS)() for name in data if name in CONSTANTS}
    assert {name: data[name] for name in measured} == measured


def _accepts(directive: str) -> bool:
    try:
        Policy.parse(directive, strict=True)
    except PolicyValueError:
        return False
    return True


def _longest_accepted() -> int:
    low, high = 1, 10 * DAY
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _accepts(f"1s {middle}s") else (low, middle)
    return low


CONSTANTS: Mapping[str, Callable[[], float | None]] = {
    "DefaultRetryCount": lambda: Policy.parse("1s", strict=True).retries,
    "DefaultMaxBackoff_s": lambda: Policy.parse("1s", strict=True).delays(FAR)[-1],
    "MinBackoffLimit_s": lambda: next(seconds for seconds in range(DAY) if _accepts(f"{seconds}s")),
    "MaxBackoffLimit_s": _longest_accepted,
}


def backoff_schedules(case: Case) -> None:
    """Check the delays of a directive, from the first failure to the last and beyond it, into the catch."""
    outcomes = ("attempts_total", "delays_s", "catch_first_delay_s", "catch_retry_delay_s")
    data = read(case.data, "directive", *outcomes, required=("directive",))
    demand(data, *outcomes)
    read(case.shared, "rule", "no_jitter", "clock")
    policy = Policy.parse(data["directive"])
    if "attempts_total" in data:
        assert data["attempts_total"] == policy.attempts
    if "delays_s" in data:
        assert data["delays_s"] == policy.delays()
    for sample in (0.0, 0.5, 0.999):  # the same delays whatever is drawn: `no_jitter`
        *retries, last = _decisions(policy, policy.retries + 1, sample)
        assert policy.delays() == [decision.delay.total_seconds() for decision in retries]
        if data.get("catch_first_delay_s") is not None:
            assert data["catch_first_delay_s"] == (0 if isinstance(last, GiveUp) else last.delay.total_seconds())
    if "catch_retry_delay_s" not in data:
        return
    if data["catch_retry_delay_s"] is None:
        assert None is policy.catch
    else:  # some directives of the file lost their catch on the way; the delay would be the same with it
        assert data["catch_retry_delay_s"] == policy.catch_delay.total_seconds()


def _decisions(policy: Policy, attempts: int, sample: float) -> list[Any]:
    history, decisions = History(1, START), []
    for _ in range(attempts):
        decisions.append(policy.decide(history, ANY_FAILURE, START, sample))
        if isinstance(decisions[-1], Retry):
            history = policy.advance(history, ANY_FAILURE, decisions[-1].delay, now=START, sample=sample)
    return decisions


def jvm_annotation(case: Case) -> None:
    """Check FTL's annotation for the JVM: the same directive in fields, except that an absent count is 0."""
    data = read(case.data, "annotation", "effective_count", "errors", required=("annotation",))
    demand(data, "effective_count", "errors")
    fields = read(data["annotation"], "count", "minBackoff", "maxBackoff", "catchModule", "catchVerb")
    given = {name: value for name, value in fields.items() if value is not None}
    names = [given[name] for name in ("catchModule", "catchVerb") if given.get(name)]
    catch = ".".join(names) if given.get("catchVerb") else None
    written = ftl.Written(given.get("count", 0), given.get("minBackoff", ""), given.get("maxBackoff", ""), catch)
    if "effective_count" in data:
        assert data["effective_count"] == written.count
    if "errors" in data:
        assert data["errors"] == written.problems()
