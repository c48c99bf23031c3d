"""Adapters for ``inprocess.json``: the delays that servers ask for, and limits by stage.

Translations that are more than a renaming: "over the limit" is a delay too long for a deadline of a hundred years;
gRPC's attempts of a client's own are ``take``; urllib3's counts by stage are rules by reason, beside a total that is
joined to them by ``&``, since a rule with its own limit is not ended by the policy's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from redrive.policy import Backoff, Failure, GiveUp, History, Jitter, Policy, Retry, Rule, Stage
from redrive.policy.hints import Hint, amazon, chosen, grpc_pushback, http_date, rate_limit_reset, retry_after
from redrive.retrying.http import is_idempotent
from tests.conformance.adapters.policies import FAILURE, MANY, START, exponential
from tests.conformance.adapters.vocabulary import Mismatch, UnknownWord, demand, is_refused, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.loading import Case

Json = dict[str, Any]
CENTURY = timedelta(days=36_525)
SAMPLES = [place / 100 for place in range(100)]


# -------------------------------------------------------------------------------------------------------------- parsing


def parsed(case: Case) -> None:
    """Read a ``Retry-After``."""
    data = read(case.data, "value", "now", "expect", "expect_utc", "response_date", "expect_note", "level")
    word(data.get("level"), {None: None, "strict": None, "lenient": None})
    if not isinstance(data["value"], str):
        raise UnknownWord(f"value {data['value']!r} (known: the text of a header)")
    now = datetime.fromisoformat(data["now"])
    hint = retry_after(data["value"], now=now, response_date=data.get("response_date"))
    if "expect_utc" in data:
        assert datetime.fromisoformat(data["expect_utc"]) == http_date(data["value"], now=now)
    match data["expect"]:
        case "invalid":
            assert hint.delay is None
            assert hint.problem
        case "over_limit":
            policy = Policy(deadline=CENTURY, backoff=Backoff.constant(0))
            decision = policy.decide(History(1, START), FAILURE._replace(hint=hint.delay), START, 0.0)
            assert isinstance(decision, GiveUp)
        case None:
            assert "expect_utc" in data or hint.delay is None
        case int() | float() as seconds if not isinstance(seconds, bool):
            assert timedelta(seconds=seconds) == hint.delay
        case other:
            raise UnknownWord(f"{other!r} (known: invalid, over_limit, null, seconds)")


def pushback(case: Case) -> None:
    """Read a ``grpc-retry-pushback-ms``."""
    data = read(case.data, "value", "expect")
    if not isinstance(data["value"], str):
        raise UnknownWord(f"value {data['value']!r} (known: the text of a header)")
    hint = grpc_pushback(data["value"])
    if isinstance(data["expect"], int | float) and not isinstance(data["expect"], bool):
        assert Hint(timedelta(seconds=data["expect"])) == hint
    else:
        assert word(data["expect"], {"no_retry": True}) == hint.stop


def clamped(case: Case) -> None:
    """Check that an ``x-amz-retry-after`` is kept near the client's own delay."""
    data = read(case.data, "header_ms", "t_i", "expect")
    if data["header_ms"] is None:  # without a header there is the client's own delay
        data["header_ms"] = ""
    assert timedelta(seconds=data["expect"]) == amazon(data["header_ms"], timedelta(seconds=data["t_i"]))


# ------------------------------------------------------------------------------------------------------------- policies


def hinted(case: Case) -> None:
    """Check the decision of a policy on a hint."""
    data = read(
        case.data, "hint", "deadline_remaining", "max_hint", "next_headers", "jitter", "backoff", "expect",
        "expect_bounds",
    )  # fmt: skip
    demand(data, "expect", "expect_bounds")
    jitter = word(data.get("jitter") or "none", _JITTERS)

    def make() -> Policy:
        return Policy(
            deadline=data.get("deadline_remaining"),
            max_hint=data.get("max_hint"),
            backoff=Backoff.constant(data.get("backoff") or 0),
            jitter=jitter,
        )

    if not is_refused(data.get("expect"), make):
        policy = make()
        first = [] if data["hint"] is None else [Hint(timedelta(seconds=data["hint"]))]
        hint = chosen([*first, *_others(data)], max_hint=policy.max_hint)
        failure = FAILURE._replace(hint=hint.delay)
        _compare(data, [policy.decide(History(1, START), failure, START, u) for u in SAMPLES])


_JITTERS: dict[str | None, Jitter] = {
    "none": Jitter.none,
    "full": Jitter.full,
    "equal": Jitter.equal,
    "up_only": Jitter.plus(0.5),
}


def _compare(data: Any, decisions: list[Any]) -> None:
    if isinstance(data.get("expect"), str):
        assert word(data["expect"], {"give_up_now": True}) == all(isinstance(each, GiveUp) for each in decisions)
        return
    if data.get("expect", 0) is None:
        raise UnknownWord("expect null (known: seconds, give_up_now, invalid)")
    waits = [each.delay.total_seconds() for each in decisions if isinstance(each, Retry)]
    low, high = data.get("expect_bounds", [data.get("expect")] * 2)
    assert len(decisions) == len(waits)
    assert low <= min(waits) <= max(waits) <= high


_HEADERS: dict[str | None, Callable[[str], Hint]] = {
    "retry-after": lambda value: retry_after(value, now=START),
    "x-ratelimit-reset": lambda value: rate_limit_reset(value, now=START),
    "ratelimit-reset": lambda value: rate_limit_reset(value, now=START),
    "grpc-retry-pushback-ms": grpc_pushback,
}


def _others(data: Any) -> Iterator[Hint]:
    for name, value in data.get("next_headers") or []:
        yield word(name.lower(), _HEADERS)(str(value))


def grpc_run(case: Case) -> None:
    """Check the delays, or the number of attempts, of a call with scripted responses."""
    data = read(case.data, "policy", "client_cap", "responses", "expect_delays", "expect", "expect_attempts")
    demand(data, "expect_delays", "expect_attempts", "expect")
    if is_refused(data.get("expect"), lambda: _grpc_policy(data["policy"])):
        return
    policy = _grpc_policy(data["policy"])
    if data.get("client_cap") is not None:
        policy = policy.take(data["client_cap"] - 1)
    for sample in (0.0, 0.5, SAMPLES[-1]):
        decisions = list(_decisions(policy, [_response(given) for given in data["responses"]], sample))
        waits = [each.delay.total_seconds() for each in decisions if isinstance(each, Retry)]
        if "expect_delays" in data:
            assert len(data["expect_delays"]) == len(waits)
            for (low, high), wait in zip(data["expect_delays"], waits, strict=True):
                if not low <= wait + 1e-6 <= high + 2e-6:
                    raise Mismatch([low, high], wait)
        if "expect_attempts" in data:
            assert data["expect_attempts"] == len(waits) + 1
        if "expect" in data:
            assert word(data["expect"], {"fail": GiveUp, "retry": Retry}) is type(decisions[-1])


def _grpc_policy(given: Json) -> Policy:
    given = read(given, "base", "factor", "cap", "jitter", "p", "max_attempts")
    word(given.get("jitter", "proportional"), {"proportional": None, "none": None})
    part = 0.0 if given.get("jitter") == "none" else given.get("p", 0.0)
    backoff = exponential(given.get("base", 0) * (1 - part), given.get("cap", 0) * (1 - part), given.get("factor", 2))
    jitter = Jitter.plus(2 * part / (1 - part))
    return Policy(attempts=given["max_attempts"], deadline=None, backoff=backoff, jitter=jitter)


def _response(given: str) -> Failure:
    kind, _, value = given.partition(":") if isinstance(given, str) else (given, "", "")
    if word(kind, {"retryable": False, "non_retryable": None, "pushback": True}):
        hint = grpc_pushback(value)
        stop = {"permanent": hint.problem} if hint.stop else {}
        return FAILURE._replace(reason="RETRY_AFTER", candidate=True, hint=hint.delay, **stop)
    return FAILURE if kind == "retryable" else FAILURE._replace(candidate=False)


def _decisions(policy: Policy, failures: list[Failure], sample: float) -> Iterator[Any]:
    history = History(1, START)
    for failure in failures:
        decision = policy.decide(history, failure, START, sample)
        yield decision
        if not isinstance(decision, Retry):
            return
        history = policy.advance(history, failure, decision.delay, now=START, sample=sample)


# --------------------------------------------------------------------------------------------------------------- stages

URLLIB3_TOTAL = 10
_STAGES: dict[str | None, Stage] = {
    "connect": Stage.NOT_SENT,
    "read": Stage.IN_FLIGHT,
    "other": Stage.IN_FLIGHT,
    "redirect": Stage.ANSWERED,
    "status": Stage.ANSWERED,
}
"""The counters of urllib3. Its ``other`` errors may have come after the request was sent."""


def stage_counts(case: Case) -> None:
    """Check the failure at which a policy with a limit for each stage gives up."""
    data = read(case.data, "policy", "events", "method", "expect_fail_at", "expect")
    demand(data, "expect_fail_at", "expect")
    limits = read(data["policy"], "total", *map(str, _STAGES))
    idempotent = is_idempotent(data.get("method") or "GET")
    if is_refused(data.get("expect"), lambda: _staged(limits, idempotent=idempotent)):
        return
    if not data["events"]:
        raise UnknownWord("a case without events")
    policy = _staged(limits, idempotent=idempotent)
    failures = [FAILURE._replace(reason=event.upper(), stage=word(event, _STAGES)) for event in data["events"]]
    decisions = list(_decisions(policy, failures, 0.0))
    failed_at = len(decisions) if isinstance(decisions[-1], GiveUp) else None
    if "expect" in data:
        word(str(data["expect"]).partition(":")[0], {"raise original": None})
        assert failed_at == 1
        assert decisions[-1].rule == "not_idempotent"
    else:
        assert data["expect_fail_at"] == failed_at


def _staged(limits: Any, *, idempotent: bool) -> Policy:
    total = limits.get("total", URLLIB3_TOTAL)
    rules = [Rule(str(stage).upper(), attempts=limits[stage] + 1) for stage in _STAGES if limits.get(stage) is not None]
    plain = {"deadline": None, "backoff": Backoff.constant(0), "idempotent": idempotent}
    return Policy(attempts=MANY if total is None else total + 1, **plain) & Policy(attempts=MANY, rules=rules, **plain)
