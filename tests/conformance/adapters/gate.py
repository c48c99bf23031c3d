"""Adapters for ``pgqrs.json``: the steps of a run at the low-level gate, with injected time."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from redrive import App, Backoff, Policy, RetryAfter
from redrive.app.flows.steps import Done, Execute, StepGuard
from redrive.engine.runs import StepOutcome, StepRecord
from redrive.errors import StepExhausted, StepNotReady
from redrive.stores.operations.runs import gate
from tests.conformance.adapters.policies import START
from tests.conformance.adapters.vocabulary import Mismatch, UnknownWord, read, word

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.loading import Case

_FIELDS = ("group", "source", "title", "given", "steps", "final", "for_us", "note")
_POINT = re.compile(r"(T0|now|retry_at)(?:\+([\d.]+)(ms|s))?")
_UNITS = {"ms": 0.001, "s": 1.0}


def step_retry(case: Case) -> None:
    """Acquire, fail and succeed steps at given times, and compare the answers and the rows."""
    data = read(case.data, *_FIELDS, required=("given", "steps"))
    given = read(data["given"], "policy", "run", required=("policy", "run"))
    word(given["run"], {"RUNNING": None})
    app = App("memory://")
    try:
        policy = _policy(given["policy"])
        runs = [_Run(app, policy, number) for number in range(_runs(data["steps"]))]
        for step in data["steps"]:
            each = step["each"] if step.get("do") == "in_parallel" else [step]
            for inner in each:
                for run in runs:
                    run.take(inner)
        _final(data.get("final", {}), runs)
    finally:
        app.close()


def _policy(given: Any) -> Policy:
    fields = read(given, "max_attempts", "meaning", "backoff", required=("max_attempts", "backoff"))
    backoff = read(fields["backoff"], "kind", "base_s", "max_s", required=("kind", "base_s", "max_s"))
    word(backoff["kind"], {"exponential_jitter": None})
    schedule = Backoff.exponential(timedelta(seconds=backoff["base_s"]), timedelta(seconds=backoff["max_s"]))
    # pgqrs counts retries; its jitter of whole quarters leaves delays below four seconds as they are.
    return Policy(attempts=fields["max_attempts"] + 1, backoff=schedule, jitter="none")


def _runs(steps: Any) -> int:
    counts = [read(each, "do", "runs", "each")["runs"] for each in steps if each.get("do") == "in_parallel"]
    return max(counts, default=1)


class _Run:
    """One run of the case: a job, the guards of its steps, and the present time."""

    def __init__(self, app: App, policy: Policy, number: int) -> None:
        self.app = app
        self.policy = policy
        self.number = number
        if "run" not in app.tasks:
            app.task(name="run")(lambda: None)
        self.job = app.tasks["run"].enqueue().id
        self.now: datetime = START
        self.step = ""
        self.due: datetime | None = None
        self.guards: dict[str, StepGuard] = {}

    def take(self, step: dict[str, Any]) -> None:
        """Carry out one step of the case."""
        self.step = step.get("step", self.step or "s")
        if "at" in step:
            self.now = self.at(step["at"])
        word(step.get("do"), _DEEDS)(self, step)

    def at(self, text: Any) -> datetime:
        """Return the instant that a text names."""
        match = _POINT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UnknownWord(f"at: {text!r} (known: T0, now and retry_at, each with +2s or +100ms)")
        base = {"T0": START, "now": self.now, "retry_at": self.due}[match[1]]
        if base is None:
            raise UnknownWord("retry_at before the first failure")
        return base + timedelta(seconds=float(match[2] or 0) * _UNITS[match[3] or "s"])

    @property
    def row(self) -> StepRecord:
        """The stored row of the present step."""
        found = self.app.store.run(gate.find(self.job, self.step))
        assert found is not None
        return found

    def acquire(self, step: dict[str, Any]) -> None:
        """Ask the gate, and compare its answer."""
        fields = read(step, "do", "step", "at", "expect", required=("expect",))
        expected = read(
            fields["expect"],
            "outcome",
            "row",
            "retry_at",
            "retry_count",
            "attempts",
            "error",
            "value",
            required=("outcome",),
        )
        answer: dict[str, Any] = {}
        try:
            given = self.app.steps.acquire(self.job, self.step, policy=self.policy, now=self.now)
        except StepNotReady as waits:
            answer = {"outcome": "NOT_READY", "retry_at": waits.retry_at, "retry_count": waits.retry_count}
        except StepExhausted as over:
            error = self.row.error
            assert error is not None
            answer = {"outcome": "EXHAUSTED", "attempts": over.tries - 1, "error": error.reason}
        else:
            if isinstance(given, Execute):
                self.guards[self.step] = given.guard
                answer = {"outcome": "EXECUTE"}
            elif isinstance(given, Done):
                answer = {"outcome": "SKIPPED", "value": given.result}
        self.compare(expected, answer)

    def fail_transient(self, step: dict[str, Any]) -> None:
        """Report an error that may be retried."""
        fields = read(step, "do", "step", "at", "code", "message", "retry_after_s", "expect")
        text = f"{fields.get('code')}: {fields.get('message')}"
        after = fields.get("retry_after_s")
        error: Exception = ConnectionError(text) if after is None else RetryAfter(float(after), text)
        self.due = self.guards[self.step].fail(error, now=self.now)
        self.compare(read(fields.get("expect", {}), "row"), {})

    def fail_permanent(self, step: dict[str, Any]) -> None:
        """Report an error that is final."""
        fields = read(step, "do", "step", "at", "code", "message")
        self.guards[self.step].fail(f"{fields.get('code')}: {fields.get('message')}", now=self.now)

    def fail_raw(self, step: dict[str, Any]) -> None:
        """Report an error without any classification, which is final."""
        fields = read(step, "do", "step", "at", "error", required=("error",))
        self.guards[self.step].fail(json.dumps(fields["error"]), now=self.now)

    def succeed(self, step: dict[str, Any]) -> None:
        """Report a result."""
        fields = read(step, "do", "step", "at", "output", required=("output",))
        self.guards[self.step].succeed(fields["output"], now=self.now)

    def compare(self, expected: dict[str, Any], answer: dict[str, Any]) -> None:
        """Compare an answer of the gate, and the row behind it."""
        shown = _row(self.row)
        for name, wanted in expected.items():
            if name == "row":
                _check_row(wanted, shown)
            elif not word(name, _CHECKS)(self, wanted, answer.get(name)):
                raise Mismatch(expected, answer)


def _row(row: StepRecord) -> dict[str, Any]:
    ended = row.outcome in {StepOutcome.OK, StepOutcome.FAILED}
    return {
        "status": {StepOutcome.RUNNING: "RUNNING", StepOutcome.OK: "SUCCESS"}.get(row.outcome, "ERROR"),
        "retry_count": row.tries - 1 if ended else row.tries,
        "error": row.error,
        "retry_at": row.due_at if row.outcome is StepOutcome.WAITING else None,
        "output": None if row.result is None else json.loads(row.result),
    }


def _check_row(wanted: Any, shown: dict[str, Any]) -> None:
    fields = read(wanted, *shown)
    for name, value in fields.items():
        found = shown[name]
        if (found is None) if value == "set" else (found != value):
            raise Mismatch(wanted, shown)


def _instant(run: _Run, wanted: Any, found: Any) -> bool:
    if wanted == "> now":
        return found is not None and found > run.now
    fields = read(wanted, "min", "max", "after")
    low, high = run.at(fields.get("min", "T0")), fields.get("max")
    after = "after" not in fields or found > run.at(fields["after"])
    return found is not None and low <= found and (high is None or found <= run.at(high)) and after


# Our names for the error codes of pgqrs.
_CODES = {"NON_RETRYABLE": "GAVE_UP"}


def _error(_: _Run, wanted: Any, found: Any) -> bool:
    fields = read(wanted, "is_transient", "code", required=("is_transient", "code"))
    return fields["is_transient"] is False and word(fields["code"], _CODES) == found


def _equal(_: _Run, wanted: Any, found: Any) -> bool:
    return wanted == found


_CHECKS: dict[str, Callable[[_Run, Any, Any], bool]] = {
    "outcome": _equal,
    "retry_at": _instant,
    "retry_count": _equal,
    "attempts": _equal,
    "error": _error,
    "value": _equal,
}

_DEEDS: dict[str, Callable[[_Run, dict[str, Any]], None]] = {
    "acquire": _Run.acquire,
    "fail_transient": _Run.fail_transient,
    "fail_permanent": _Run.fail_permanent,
    "fail_raw": _Run.fail_raw,
    "succeed": _Run.succeed,
}


def _final(given: Any, runs: list[_Run]) -> None:
    fields = read(given, "step", "steps", "run")
    if "step" in fields:
        _check_row(fields["step"], _row(runs[0].row))
    if "steps" in fields:
        every = read(fields["steps"], "count", "each", required=("count", "each"))
        if every["count"] != len(runs):
            raise Mismatch(every["count"], len(runs))
        for run in runs:
            _check_row(every["each"], _row(run.row))
    if "run" in fields:
        status = word(read(fields["run"], "status", required=("status",))["status"], {"RUNNING": "ready"})
        if runs[0].app.job(runs[0].job).state != status:
            raise Mismatch(fields["run"], runs[0].app.job(runs[0].job).state)
