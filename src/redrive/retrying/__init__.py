"""Calls in this process, retried: call, wait, call again, and say what happened.

Answers: how is what `redrive.policy` decides carried out where the caller waits for it? May import:
`redrive.observe` and below, but for the engine. Must never: decide (law 1), know of a store or of the engine, keep
anything from one call to the next, or make an undisturbed call dearer than a loop written by hand (law 10).

There is one loop, `run`, without a colour. The forms put calls and waits into it:

=========================================  ============================================================
``@redrive.retry("5 100ms 2s", on=...)``   functions of every kind: `decorator`, `wrapper`, `generators`
``policy.call``, ``acall``                 any callable: `sync`, `aio`
``policy.outcome``, ``aoutcome``           the same, and never raising: `sync`, `aio`
``for attempt in policy``, ``async for``   work that is no function: `blocks`
=========================================  ============================================================

What holds for all of them:

* **State is per call.** Policies are values; a `run.Run` is made for each call and dropped with it. Threads and tasks
  share functions and policies freely. (In tenacity four tasks share one count; in hyx, one series of delays.)
* **The last error is raised, unchanged**: the same object, its traceback, ``__cause__`` and ``__context__`` as they
  were, plus one note (``gave up after 3 attempts in 1.24 s: ...``) and its record as ``__retry__``. An error that the
  policy does not name passes the first attempt without a trace. A last *result* that is still rejected is returned.
* **Control flow is no failure.** ``CancelledError``, ``KeyboardInterrupt``, ``SystemExit``, ``GeneratorExit`` and
  trio's ``Cancelled`` pass at once, whatever ``on`` says: only an ``Exception`` is ever looked at, and none of them is
  one.
* **One layer retries a failure.** An inner call leaves a failure to a retried call above that would retry it, unless
  the inner policy has ``nested="both"``; what no call above would retry, the inner call retries. `context` describes
  how a call finds the calls above, and the one case in which it does not.
* **Predicates may be coroutine functions** (``on`` and ``on_result``) where calls are awaited. Elsewhere they are
  refused: when a function is decorated, and at the first use of ``policy.call``, ``policy.outcome`` and of blocks,
  whose ``with attempt:`` cannot await. Durable policies store no functions at all.
* **Time is told to the callee.** `deadline` gives what is left, without an argument passed down. In async code an
  ``attempt_timeout``, and a deadline that was given, also cut an attempt off (`aio`); sync code cannot be interrupted
  without harm and is not. The 45 s that apply where no deadline was given are no promise of that kind: they only end
  the retrying.
* **Waiting is the clock's.** Every wait goes through `redrive.clock.Clock`, so that a test can jump. Nothing that waits
  holds the error of the attempt before, and so nothing holds its frames.

* **Who wants to know is told.** Each retry, and each end that is news, is an event of `redrive.observe`.
* **What is shared is named.** Budgets, breakers and hedging plans are registered under a key (`shared`), and a policy
  names the key; a `Limiter` decorates the function. What stands in `LATER` is loaded by its first use (law 10).

The verbs of a policy are declared in `redrive.policy.call_methods` and come here through `redrive.seams`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.policy.outcome import Deferred, GaveUp, Ok, Outcome, Record, Try
from redrive.retrying.context import Deadline, deadline, disabled
from redrive.retrying.decorator import retry
from redrive.retrying.generators import resume

if TYPE_CHECKING:
    from redrive.policy.adaptive import Adaptive
    from redrive.policy.breaker import BreakerSettings
    from redrive.policy.budget import ConcurrencyBudget, RatioBudget, ThrottleBudget, TokenBudget
    from redrive.policy.shedding import Shedding
    from redrive.retrying.hedging import Hedge
    from redrive.retrying.limiter import Limiter
    from redrive.retrying.shared import SharedBreaker, SharedBudget, breaker, budget, hedge, isolated

__all__ = [
    "Adaptive",
    "BreakerSettings",
    "ConcurrencyBudget",
    "Deadline",
    "Deferred",
    "GaveUp",
    "Hedge",
    "Limiter",
    "Ok",
    "Outcome",
    "RatioBudget",
    "Record",
    "SharedBreaker",
    "SharedBudget",
    "Shedding",
    "ThrottleBudget",
    "TokenBudget",
    "Try",
    "breaker",
    "budget",
    "deadline",
    "disabled",
    "hedge",
    "isolated",
    "resume",
    "retry",
]

LATER = {
    "Adaptive": "redrive.policy.adaptive",
    "BreakerSettings": "redrive.policy.breaker",
    "ConcurrencyBudget": "redrive.policy.budget",
    "Hedge": "redrive.retrying.hedging",
    "Limiter": "redrive.retrying.limiter",
    "RatioBudget": "redrive.policy.budget",
    "SharedBreaker": "redrive.retrying.shared",
    "SharedBudget": "redrive.retrying.shared",
    "Shedding": "redrive.policy.shedding",
    "ThrottleBudget": "redrive.policy.budget",
    "TokenBudget": "redrive.policy.budget",
    "breaker": "redrive.retrying.shared",
    "budget": "redrive.retrying.shared",
    "hedge": "redrive.retrying.shared",
    "isolated": "redrive.retrying.shared",
}
"""Where the names are that a plain retry does not need."""


def __getattr__(name: str) -> Any:
    """Load one of them."""
    home = LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'redrive.retrying' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
