"""Retry budgets: limits for the retries that all callers of one target make together.

===================  ==============================  ========================================================
budget               source of its tokens            refuses a retry when
===================  ==============================  ========================================================
`TokenBudget`        successes (AWS SDKs)            fewer tokens are left than the retry costs
`RatioBudget`        calls (Finagle)                 retries would exceed a share of the recent calls
`ConcurrencyBudget`  calls in flight (Envoy)         retries in flight exceed a share of the calls in flight
`ThrottleBudget`     successes (gRPC, proposal A6)   half of the tokens are gone
===================  ==============================  ========================================================

A budget is an immutable set of numbers. Its mutable state is the `Ledger` that ``budget.open()`` returns. A ledger has
no lock and no clock; its owner has both (`redrive.retrying.shared`). Instants are seconds on a monotonic clock.

Order of the calls to a ledger, for one call under a policy::

    begin                                        the call begins
      spend(failure)  -> price, or None: refused  a retry has been *decided*, not sent: see `ConcurrencyBudget`
      release                                     that retry has ended
      ...
      succeed(price of the last retry) | fail     the call's result; neither of them if it is unknown
    end                                           the call is over
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
