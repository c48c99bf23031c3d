"""Retried calls in this process.

May import: `redrive.observe` and the layers below it, except the engine. Must never: decide on retries (the policy
does), import a store, keep state between calls except in budgets, breakers and limiters, or make a call that succeeds
at once slower than a loop by hand.

There is one loop (`redrive.retrying.state`), used by:

=========================================  ============================================================
``@redrive.retry("5 100ms 2s", on=...)``   functions of every kind: `decorator`, `wrapper`, `generators`
``policy.call``, ``acall``                 any callable: `runner`, `loops`
``policy.outcome``, ``aoutcome``           the same without raising: `runner`, `loops`
``for attempt in policy``, ``async for``   blocks: `runner`
=========================================  ============================================================

Rules for all of them:

* **State is per call.** A policy is a value without state; each call has its own `state.CallState`. Threads and tasks
  share functions and policies.
* **The last error is raised unchanged**: the same object with its traceback, ``__cause__`` and ``__context__``, one
  more note (``gave up after 3 attempts in 1.24 s: ...``) and the record as ``__retry__``. An error that the policy does
  not match passes the first attempt without either. A last *result* that is still rejected is returned; of a
  block, ``attempt.gave_up`` shows it.
* **A call that may have taken effect is repeated only if it is idempotent.** `redrive.policy.stage` has the meaning of
  built-in exceptions. ``idempotent=False`` of a called function holds against the policies around it, too (`once`).
* **Control flow is not a failure.** ``CancelledError``, ``KeyboardInterrupt``, ``SystemExit``, ``GeneratorExit`` and
  trio's ``Cancelled`` are no ``Exception`` and pass at once, whatever ``on`` is. A cancellation that an attempt has
  turned into another error is raised in its place (`cancellation`). An awaited call lets other tasks run before each
  retry, also without a wait.
* **One layer retries a failure.** An inner call leaves a failure to an enclosing call or a job that would retry it,
  unless the inner policy has ``nested="both"``; the attempts of one in another task or thread count as those of the
  enclosing call. See `context`.
* **Each owner has a budget.** A decorated function, a policy object and a transport without ``budget`` have their own;
  a call that is alone is never refused. See `own`.
* **Predicates may be coroutine functions** (``on`` and ``on_result``) where calls are awaited. Elsewhere they are
  refused: when a function is decorated, and at the first use of ``policy.call``, ``policy.outcome`` and of blocks.
* **Called code can read the time that is left** from `deadline`. Async attempts are also cancelled at an
  ``attempt_timeout`` and at a deadline that was given; sync code is never interrupted. The default deadline of 45 s
  only ends the retrying.
* **Waits use** `redrive.clock.Clock`, so that tests can jump. No wait keeps a reference to the error before it.
* **Retries and ends emit events** of `redrive.observe`.
* **Shared limits have names.** Budgets, breakers and hedges are registered under a key (`shared`); a `Limiter`
  decorates the function. The names in `_LAZY` are loaded at their first use, so that a plain retry costs little to
  import.

`redrive.policy.call_methods` declares the methods of a policy, which call this package through `redrive.seams`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.policy.outcome import Deferred, GaveUp, Ok, Outcome, Record, RetryDetails, Try
from redrive.retrying.context import Deadline, attempt, deadline, disable, disabled, enable
from redrive.retrying.decorator import retry

if TYPE_CHECKING:
    from redrive.policy.breaker import BreakerSettings
    from redrive.policy.budget import ConcurrencyBudget, RatioBudget, ThrottleBudget, TokenBudget
    from redrive.policy.hedge import Hedge
    from redrive.policy.overload import Adaptive, Shedding
    from redrive.retrying.generators import resume
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
    "RetryDetails",
    "SharedBreaker",
    "SharedBudget",
    "Shedding",
    "ThrottleBudget",
    "TokenBudget",
    "Try",
    "attempt",
    "breaker",
    "budget",
    "deadline",
    "disable",
    "disabled",
    "enable",
    "hedge",
    "isolated",
    "resume",
    "retry",
]

_LAZY = {
    "redrive.policy.breaker": ("BreakerSettings",),
    "redrive.policy.budget": ("ConcurrencyBudget", "RatioBudget", "ThrottleBudget", "TokenBudget"),
    "redrive.policy.hedge": ("Hedge",),
    "redrive.policy.overload": ("Adaptive", "Shedding"),
    "redrive.retrying.generators": ("resume",),
    "redrive.retrying.limiter": ("Limiter",),
    "redrive.retrying.shared": ("SharedBreaker", "SharedBudget", "breaker", "budget", "hedge", "isolated"),
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    module = next((module for module, names in _LAZY.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'redrive.retrying' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)
