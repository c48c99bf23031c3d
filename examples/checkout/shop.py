"""A shop whose checkout is a workflow: charge, pack in two branches, wait for the parcel, write the receipt.

Each effect is a line of ``effects.jsonl``, written by the step that has it; the audit compares these lines with what
the runs have recorded. The receipt is a row of the app's own database, written in the transaction that records its
step.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import redrive
from redrive.errors import TimedOut

FOLDER = Path(os.environ.get("CHECKOUT_FOLDER", "."))
EFFECTS = FOLDER / "effects.jsonl"

app = redrive.App(f"sqlite:///{FOLDER.resolve()}/shop.db", heartbeat_every="500ms", lease_for="1500ms")


@dataclass(frozen=True)
class Order:
    """What a customer has ordered; ``kind`` is ``plain``, ``sold_out`` or ``lost``."""

    number: int
    cents: int
    kind: str = "plain"


def effect(name: str, order: int) -> None:
    """Write an effect. A line is appended whole, also by several processes."""
    line = json.dumps({"effect": name, "order": order}) + "\n"
    with EFFECTS.open("a") as file:
        file.write(line)


def unreliable() -> None:
    """Fail one time in five, as a network does."""
    if random.random() < 0.2:
        raise ConnectionError("no answer")


def charge(order: Order) -> str:
    """Charge the card, and return the number of the charge."""
    unreliable()
    effect("charge", order.number)
    return f"charge-{order.number}"


def refund(charge_number: str) -> None:
    """Take the charge back."""
    unreliable()
    effect("refund", int(charge_number.removeprefix("charge-")))


async def book_out(order: Order) -> int:
    """Take the goods out of the stock; some are sold out."""
    unreliable()
    if order.kind == "sold_out":
        raise redrive.GiveUp("sold out")
    effect("book_out", order.number)
    return order.number


def book_in(order: int) -> None:
    """Put the goods back."""
    effect("book_in", order)


async def send_mail(order: Order) -> None:
    """Confirm the order to the customer."""
    unreliable()
    effect("mail", order.number)


def write_receipt(connection: sqlite3.Connection, order: Order, state: str) -> str:
    """Write the receipt in the transaction that records this step."""
    connection.execute("CREATE TABLE IF NOT EXISTS receipts (number INTEGER, state TEXT)")
    connection.execute("INSERT INTO receipts VALUES (?, ?)", (order.number, state))
    return f"receipt {order.number}: {state}"


@app.workflow(steps="20 20ms 200ms")
async def checkout(flow: redrive.Flow, order: Order) -> str:
    """Sell an order. Charge and stock are taken back if a later step fails."""
    await flow.step(charge, order, undo=refund)
    flow.set("state", "charged")
    await flow.gather(flow.step(book_out, order, undo=book_in), flow.step(send_mail, order), on_error="wait")
    await flow.sleep("300ms")
    try:
        parcel = await flow.wait_for("shipped", int, timeout="2s")
        state = f"parcel {parcel}"
    except TimedOut:
        state = "parcel lost"
    return await flow.transaction(write_receipt, order, state)
