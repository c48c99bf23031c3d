"""Retry budgets as arithmetic: how many retries all callers of one target may make together.

A policy bounds one call. A thousand calls that fail together are still a thousand times its attempts, at the moment
when the target can bear it least. A budget is shared by all of them. Four kinds are known in the field, and they differ
in what feeds them:

===================  ==============================  ========================================================
budget               is fed by                       and refuses a retry when
===================  ==============================  ========================================================
`TokenBudget`        success (AWS SDKs)              there are fewer tokens than it costs
`RatioBudget`        calls (Finagle)                 retries would exceed a share of the recent calls
`ConcurrencyBudget`  calls in flight (Envoy)         retries in flight exceed a share of the calls in flight
`ThrottleBudget`     success (gRPC, proposal A6)     half of the tokens are gone
===================  ==============================  ========================================================

A budget is a value: its numbers. What it has seen is in the `Ledger` that ``budget.open()`` gives. A ledger is plain
and mutable; whoever owns it has the lock and the clock (`redrive.retrying.shared`). All instants are seconds on one
clock that goes forward.

A call meets its ledger like this; every method has a meaning for some kinds and none for the others::

    begin                                        the call begins
      spend(failure)  -> price, or None: refused  a retry has been *decided*, not sent: see `ConcurrencyBudget`
      release                                     that retry has ended, in whatever way
      ...
      succeed(price of the last retry) | fail     how it ended; neither, if nobody knows
    end                                          it is over
"""

from __future__ import annotations

from redrive.policy.ledger import Budget, Ledger
from redrive.policy.shares import ConcurrencyBudget, ConcurrencyLedger, RatioBudget, RatioLedger
from redrive.policy.tokens import ThrottleBudget, ThrottleLedger, TokenBudget, TokenLedger

__all__ = [
    "Budget",
    "ConcurrencyBudget",
    "ConcurrencyLedger",
    "Ledger",
    "RatioBudget",
    "RatioLedger",
    "ThrottleBudget",
    "ThrottleLedger",
    "TokenBudget",
    "TokenLedger",
]
