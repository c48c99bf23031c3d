"""An app with one of each that a dashboard shows, for the pages of `benchmarks.scale`."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.subjects.redrive import URL, define
from redrive import Context, Filter, Flow
from redrive.app.app import App
from redrive.engine.lifecycle import State
from redrive.operate.table import ROWS
from redrive.runtime.worker import Worker
from redrive.stores.operations import workers

__all__ = ["app", "fill", "pages"]

app = App(os.environ.get(URL, "memory://"))

noop = define(app)

QUEUE = "desk"


@app.task(queue=QUEUE, retry="0", search=["invoice"])
def charge(invoice: str) -> None:
    """Die."""
    raise ValueError(f"the card of {invoice} was declined")


@app.cron("* * * * *", queue=QUEUE)
def sync() -> None:
    """Do nothing."""


@app.refresh("Refresh every 2 hours; retry 2 times every 5 minutes", queue=QUEUE)
def prices(url: str) -> None:
    """Do nothing."""


@app.step
def pay(order: str) -> str:
    """Do nothing."""
    return order


@app.workflow(queue=QUEUE)
async def checkout(flow: Flow, order: str) -> str:
    """Pay, and wait for a person."""
    await flow.step(pay, order)
    return await flow.wait_for("approved", str)


payment = app.machine("payment", data=dict, queue=QUEUE)


@dataclass
class Created:
    """The first event of a payment."""

    amount: int


@payment.start
def created(event: Created, ctx: Context) -> None:
    """Keep the amount."""
    ctx.set_data({"amount": event.amount})


receipts = app.topic("receipts", str)


@receipts.subscribe("send")
def send(event: str) -> None:
    """Do nothing."""


EXAMPLES = {
    "/jobs/{id}": "",
    "/errors/{group}": "/errors/1-1",
    "/queues/{name:path}": "/queues/q0",
    "/tasks/{name:path}": "/tasks/noop",
    "/workers/{id}": "",
    "/runs/{workflow}/{run:path}": "/runs/checkout/order-7",
    "/machines/{machine}": "/machines/payment",
    "/machines/{machine}/{key:path}": "/machines/payment/card-7",
    "/topics/{topic}/{subscription}": "/topics/receipts/send",
    "/topics/{topic}/{subscription}/move": "/topics/receipts/send/move?to=beginning",
    "/schedules/{name}": "/schedules/sync",
    "/schedules/{name}/calendar": "/schedules/sync/calendar",
    "/schedules/{name}/item": "/schedules/prices/item?key=price-7",
    "/operations/preview": "/operations/preview?action=redrive&q=state:dead",
    "/operations/{id}": "/operations/1",
    "/problems/{name}": "/problems/JobNotFound",
}
"""An address of each page with variable parts; what is empty depends on the database."""


def pages() -> list[str]:
    """Return an address of each page."""
    newest = app.jobs.select(Filter(limit=1))[0].id
    dead = app.jobs.select(Filter(queue="q0", state=State.DEAD, limit=1))[0].id
    given = EXAMPLES | {"/jobs/{id}": f"/jobs/{newest}", "/workers/{id}": f"/workers/{app.workers.select()[0].id}"}
    return [*(given.get(each.path, each.path) for each in ROWS if each.template), f"/jobs/{dead}", "/schedules/prices"]


def fill(count: int = 1000) -> None:
    """Make things of each kind, and an operation, and workers; only once."""
    logging.getLogger("redrive").setLevel(logging.CRITICAL)
    app.open()
    if app.jobs.select(Filter(task="charge", limit=1)):
        return
    charge.enqueue_many([f"inv-{number}" for number in range(count)])
    receipts.publish_many([f"inv-{number}" for number in range(count)])
    for number in range(count // 4):
        checkout.start(f"order-{number}", id=f"order-{number}")
        payment.send(f"card-{number}", Created(number))
        prices.track(f"price-{number}", "https://example.com")
    asyncio.run(Worker(app, queues=[QUEUE], until_empty=True).run())
    at = app.jobs.select(Filter(limit=1))[0].enqueued_at
    sync.backfill(at - timedelta(hours=3), at)
    charge.options(tags=["late"], delay="1d").enqueue_many([f"inv-{number}" for number in range(count)])
    found = app.operations.preview("cancel", Filter(tag="late", limit=count))
    app.operations.finish(app.operations.start(found, actor="ann").id)
    app.queue("reports").pause(actor="ann")
    for number in range(8):
        app.store.run(workers.register(f"web-{number}", concurrency=100, lease_for=timedelta(days=7)))
