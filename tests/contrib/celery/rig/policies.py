"""The policy and the errors of the random sequences, for redrive's own engine and for workers of Celery."""

from __future__ import annotations

import redrive
from redrive.policy import Backoff, Policy, Rule

RULED = Policy(
    attempts=4,
    backoff=Backoff.exponential("1ms", "4ms"),
    jitter="none",
    rules=[Rule(on=KeyError, attempts=2, backoff=Backoff.constant("2ms")), Rule(on="TIMEOUT", attempts=3)],
    on=(OSError, LookupError, "TIMEOUT", "RETRY_AFTER"),
)
ERRORS = {
    "KeyError": KeyError("k"),
    "ConnectionError": ConnectionError("down"),
    "TimeoutError": TimeoutError("late"),
    "ValueError": ValueError("bad"),
    "NameError": NameError("bug"),
    "GiveUp": redrive.GiveUp("stolen card"),
    "RetryAfter": redrive.RetryAfter(0.005),
}
