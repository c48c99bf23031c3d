"""Online payments as a state machine: created, paid, completed, and what may go wrong in between."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from redrive import App, CatchRequest, Context, FailedTransition

app = App(os.environ.get("PAYMENTS_URL", "sqlite:///payments.db"))

LEDGER = os.environ.get("PAYMENTS_LEDGER", "ledger.db")
"""Stands for the provider and the bookkeeping: a database that redrive knows nothing of."""


@dataclass
class OnlinePaymentCreated:
    """A customer has begun to pay."""

    cents: int


@dataclass
class OnlinePaymentPaid:
    """The provider has the money; its webhook says so, once or several times."""

    receipt: str


@dataclass
class OnlinePaymentCompleted:
    """The payment is booked."""

    receipt: str


@dataclass
class OnlinePaymentExpired:
    """The customer has not paid in time, or the provider has not settled."""


@dataclass
class Payment:
    """What a payment is about."""

    cents: int


payment = app.machine("payment", retry="10 1s 10s", data=Payment)


@payment.start(timeout=("1 day", OnlinePaymentExpired()))
def created(event: OnlinePaymentCreated, ctx: Context) -> None:
    """Store the amount and show the payment page."""
    ctx.set_data(Payment(event.cents))


@payment.state(after=[created], timeout=("3 days", OnlinePaymentExpired()), ignore=[OnlinePaymentPaid])
def paid(event: OnlinePaymentPaid, ctx: Context) -> None:
    """Go on by itself: the next transition has a policy, a catch task and a failure of its own."""
    ctx.next(OnlinePaymentCompleted(event.receipt))


@app.task
def tell_customer(request: CatchRequest[OnlinePaymentCompleted], ctx: Context) -> None:
    """Write a mail after the last failure, before the payment goes to review."""
    record("mail", f"{ctx.key}: {request.error}")


@payment.state(after=[paid], retry="3 1s 5s catch tell_customer", failed_to="review")
def completed(event: OnlinePaymentCompleted, ctx: Context) -> None:
    """Book the payment at the provider, which knows this attempt by the idempotency key of the job."""
    book(ctx.idempotency_key, str(ctx.key), ctx.data.cents, event.receipt)


@payment.state(after=[created, paid])
def expired(event: OnlinePaymentExpired, ctx: Context) -> None:  # noqa: ARG001 - its class chooses
    """Release what was reserved."""
    record("released", str(ctx.key))


@payment.state()
def review(event: FailedTransition) -> None:
    """Put the payment on a clerk's list."""
    record("review", f"{event.key}: {event.error}")


# ------------------------------------------------------------------------------------------- the provider and the books


class ProviderDown(ConnectionError):
    """The provider does not answer."""


def book(key: str, invoice: str, cents: int, receipt: str) -> None:
    """Book a payment once for each idempotency key.

    Raises:
        ProviderDown: the receipt says so, as often as it says.
        ValueError: the provider refuses the receipt.
    """
    with closing(sqlite3.connect(LEDGER, timeout=30)) as ledger, ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS calls (key TEXT)")
        ledger.execute("CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, invoice TEXT, cents INTEGER)")
        ledger.execute("INSERT INTO calls VALUES (?)", (key,))
        calls = ledger.execute("SELECT count(*) FROM calls WHERE key = ?", (key,)).fetchone()[0]
        if receipt.startswith("refused"):
            refused = f"the provider refuses the receipt {receipt!r}"
        else:
            refused = None
            if not receipt.startswith("down") or calls > 2:
                ledger.execute("INSERT OR IGNORE INTO bookings VALUES (?, ?, ?)", (key, invoice, cents))
                return
    if refused is not None:
        raise ValueError(refused)
    raise ProviderDown("no answer")


def record(kind: str, text: str) -> None:
    """Write a line into the books."""
    with closing(sqlite3.connect(LEDGER, timeout=30)) as ledger, ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS lines (kind TEXT, text TEXT)")
        ledger.execute("INSERT INTO lines VALUES (?, ?)", (kind, text))


def lines(kind: str) -> list[str]:
    """Return the lines of a kind."""
    with closing(sqlite3.connect(LEDGER, timeout=30)) as ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS lines (kind TEXT, text TEXT)")
        return [row[0] for row in ledger.execute("SELECT text FROM lines WHERE kind = ? ORDER BY rowid", (kind,))]


def bookings() -> dict[str, int]:
    """Return the cents of each booked invoice."""
    with closing(sqlite3.connect(LEDGER, timeout=30)) as ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, invoice TEXT, cents INTEGER)")
        return dict(ledger.execute("SELECT invoice, sum(cents) FROM bookings GROUP BY invoice ORDER BY invoice"))
