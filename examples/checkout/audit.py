"""The proof that each run has ended as it should, with the effects that it should have.

Three records are compared: the runs with their recorded steps, the lines of ``effects.jsonl``, and the receipts.

* A plain order has a receipt with its parcel, a lost one a receipt that says so, one that is sold out none.
* An order that was charged and has failed is refunded; no other is.
* A recorded step had its effect at least once, and no step has its effect without a run that began it.
* An effect is repeated only by a kill between the effect and its record, so there are at most as many repetitions as
  killed workers had branches.
* Receipts are exactly once, because they commit with the record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from shop import EFFECTS, Order, app, checkout

from redrive.engine.lifecycle import State

SLOTS = 8 * 2


def audit(orders: Sequence[Order], kills: int) -> list[str]:
    """Return what is wrong; nothing if all is right."""
    effects = Counter()
    for line in EFFECTS.read_text().splitlines():
        entry = json.loads(line)
        effects[entry["effect"], entry["order"]] += 1
    receipts = dict(_receipts())
    faults = [fault for order in orders for fault in _faults(order, effects, receipts.get(order.number, []))]
    repeated = sum(count - 1 for count in effects.values())
    if repeated > kills * SLOTS:
        faults.append(f"{repeated} effects were repeated, which {kills} kills cannot explain")
    return faults


def _receipts() -> Iterator[tuple[int, list[str]]]:
    """Yield the receipts by order."""
    store = app.store.begin()
    try:
        has = store.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'receipts'").fetchone()
        rows = store.connection.execute("SELECT number, state FROM receipts").fetchall() if has else []
    finally:
        store.rollback()
    for number in {row[0] for row in rows}:
        yield number, [state for other, state in rows if other == number]


def _faults(order: Order, effects: Counter, receipts: list[str]) -> Iterator[str]:
    run = checkout.run(f"order-{order.number}")
    state = run.job.refresh().state
    recorded = {line.name for line in run.timeline() if line.outcome == "ok"}
    expected = {
        "plain": (State.SUCCEEDED, [f"parcel {order.number}"]),
        "lost": (State.SUCCEEDED, ["parcel lost"]),
        "sold_out": (State.DEAD, []),
    }[order.kind]
    if (state, receipts) != expected:
        yield f"order {order.number} ({order.kind}) is {state} with receipts {receipts}, and not {expected}"
    for step, name in (("charge", "charge"), ("book_out", "book_out"), ("send_mail", "mail"), ("refund", "refund")):
        if step in recorded and not effects[name, order.number]:
            yield f"order {order.number}: step {step} is recorded, and has no effect"
        if step not in recorded and effects[name, order.number]:
            yield f"order {order.number}: step {step} has an effect, and is not recorded"
    if ("refund" in recorded) != (state is State.DEAD):
        yield f"order {order.number} is {state}, and {'was' if 'refund' in recorded else 'was not'} refunded"
