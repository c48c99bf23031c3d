"""Plays payments: webhooks that come twice, a provider that is down, and customers who never pay."""

from __future__ import annotations

import sys
import time

from payments import OnlinePaymentCreated, OnlinePaymentPaid, app, bookings, payment

RECEIPTS = {1: "ok-1", 2: "down-2", 3: "refused-3"}
"""Of those who pay: one at once, one while the provider is down, one with a receipt that the provider refuses."""


def begin(count: int) -> None:
    """Create payments; a second call creates none, because each event has a key."""
    for number in range(1, count + 1):
        payment.send(f"invoice-{number}", OnlinePaymentCreated(100 * number), key="created")


def pay(receipts: dict[int, str]) -> None:
    """Deliver the webhooks of the provider, each twice."""
    for number, receipt in receipts.items():
        for _ in range(2):
            payment.send(f"invoice-{number}", OnlinePaymentPaid(receipt), key=f"webhook-{receipt}", busy="queue")


def report() -> list[str]:
    """Return a line for each payment: its key, its state and its way there."""
    found = []
    for each in payment.select():
        states = [move.to_state or "-" for move in reversed(payment.get(each.key).history())]
        found.append(f"{each.key}: {each.state} ({each.status}), by {' -> '.join(states)}")
    return found


def main(seconds: float = 30) -> int:
    """Play, wait for the workers, and print what became of each payment."""
    begin(4)
    pay(RECEIPTS)
    print("start a worker: redrive worker payments:app")
    until = time.monotonic() + seconds
    wanted = {1: "completed", 2: "completed", 3: "review"}
    while time.monotonic() < until:
        if all(payment.get(f"invoice-{number}").state == state for number, state in wanted.items()):
            break
        time.sleep(0.2)
    for line in report():
        print(line)
    print(f"booked: {bookings()}")
    app.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
