"""The app of the kept databases: its code before and after an upgrade, imported by workers as ``tests.upgrades.work``.

A kept database has the names of these functions, their arguments and their policies. Extend this module, but keep what
is here as long as a database of a version that had it is kept.

Each function notes its effect once it has succeeded, in memory or, with ``UPGRADE_LEDGER``, as a line of a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import redrive

app = redrive.App(os.environ.get("UPGRADE_URL", "memory://"), heartbeat_every="1s", lease_for="10s", keep_for="3650d")

TROUBLE: set[str] = set()
"""The effects that fail at present, as while the databases are made."""

LEDGER: list[str] = []
"""The effects of this process, if ``UPGRADE_LEDGER`` names no file."""

BREAKER = redrive.retrying.breaker("ledger", redrive.retrying.BreakerSettings(volume_threshold=3, error_threshold=50))

app.queue("limited", concurrency=1)
app.queue("rated", rate="1/1h")
app.queue("ordered", ordered=True)


def act(name: str) -> str:
    """Have an effect, or fail if it is troubled."""
    if name in TROUBLE:
        message = f"{name} is out of order"
        raise ConnectionError(message)
    LEDGER.append(name)
    if "UPGRADE_LEDGER" in os.environ:
        with open(os.environ["UPGRADE_LEDGER"], "a", encoding="utf-8") as file:  # noqa: PTH123 - one line, one write
            file.write(f"{name}\n")
    return f"did {name}"


# -------------------------------------------------------------------------------------------------------------- jobs


@app.task(retry="3 1m", search=["name"])
def do(name: str) -> str:
    """Have an effect."""
    return act(name)


@app.task(retry="0")
def risk(name: str) -> str:
    """Die at the first failure."""
    return act(name)


@app.task(retry="0 catch rescue")
def caught(name: str) -> str:
    """Die at the first failure, and be caught."""
    return act(name)


@app.task
def rescue(request: redrive.CatchRequest[str]) -> None:
    """Catch."""
    act(f"rescue {request.request}")


@app.task(retry=redrive.Policy.parse("1 1s").with_(breaker="ledger"))
def pay(name: str) -> str:
    """Call a service behind a circuit breaker."""
    return act(name)


@app.task
def ask(name: str, ctx: redrive.Context) -> str | redrive.Pending:
    """Wait for an answer from outside."""
    ctx.heartbeat({"asked": name})
    return redrive.Pending("2d")


@app.task
def later(name: str) -> str:
    """Be called again in an hour while the effect is troubled."""
    if name in TROUBLE:
        raise redrive.Snooze("1h")
    return act(name)


# --------------------------------------------------------------------------------------------------- crons, refreshes


@app.cron("30 * * * *")
def hourly(ctx: redrive.Context) -> None:
    """Occur each hour."""
    act(f"hourly {ctx.occurs_at:%d %H:%M}")


@app.task
def remind(customer: str, ctx: redrive.Context) -> None:
    """Occur for each customer, by a cron that was created at run time."""
    act(f"remind {customer} {ctx.occurs_at:%d %H:%M}")


@app.refresh(
    "Refresh every day at 6 AM; on the first failure, retry after 20 minutes; "
    "Give up after the final unsuccessful retry"
)
def prices(url: str, ctx: redrive.Context) -> None:
    """Download a price list."""
    act(f"prices {url}")


# ----------------------------------------------------------------------------------------------------------- machines

payment = app.machine("payment", retry="3 20m")


@dataclass
class Created:
    """A customer is to pay."""

    cents: int


@dataclass
class Paid:
    """The customer has paid."""

    receipt: str


@dataclass
class Expired:
    """The customer has not paid in time."""


@payment.start(timeout=("5 hours", Expired()))
def created(event: Created, ctx: redrive.Context) -> None:
    """Show the page."""
    act(f"create {ctx.key}")


@payment.state(after=[created])
def paid(event: Paid, ctx: redrive.Context) -> None:
    """Book."""
    act(f"pay {ctx.key}")


@payment.state(after=[created])
def expired(event: Expired, ctx: redrive.Context) -> None:
    """Release."""
    act(f"expire {ctx.key}")


# ------------------------------------------------------------------------------------------------------------- topics

orders = app.topic("orders", int)


@orders.subscribe("index")
def index(order: int) -> None:
    """Take each order, in any order."""
    act(f"index {order}")


@orders.subscribe("ship", order="key", retry="3 20m")
def ship(order: int) -> None:
    """Take the orders of a customer one after the other."""
    act(f"ship {order}")


@orders.subscribe("audit", retry="0")
def audit(order: int) -> None:
    """Die at the first failure."""
    act(f"audit {order}")


# ---------------------------------------------------------------------------------------------------------- workflows


def undo(done: str) -> None:
    """Take an effect back."""
    act(f"undo {done.removeprefix('did ')}")


@app.workflow()
async def sleeps(flow: redrive.Flow) -> list[str]:
    """Sleep between two steps."""
    first = await flow.step(act, f"{flow.id} first")
    await flow.sleep("2h")
    return [first, await flow.step(act, f"{flow.id} second")]


@app.workflow()
async def asks(flow: redrive.Flow) -> str:
    """Wait for a signal, and for an event."""
    flow.set("phase", "asked")
    first = await flow.step(act, f"{flow.id} first")
    answer = await flow.wait_for("answer", str)
    event = await flow.wait_for_event("opened", str)
    return f"{first}, {answer}, {event}"


@app.workflow()
async def calls(flow: redrive.Flow) -> list[str]:
    """Call a child run."""
    first = await flow.step(act, f"{flow.id} first")
    return [first, *await flow.call(sleeps)]


@app.workflow()
async def undoes(flow: redrive.Flow) -> list[str]:
    """Take the first two steps back when the last one fails for good."""
    first = await flow.step(act, f"{flow.id} first", undo=undo)
    second = await flow.step(act, f"{flow.id} second", undo=undo)
    return [first, second, await flow.step(act, f"{flow.id} last", retry="0")]


@app.workflow()
async def retries(flow: redrive.Flow) -> list[str]:
    """Retry the second step."""
    first = await flow.step(act, f"{flow.id} first")
    return [first, await flow.step(act, f"{flow.id} second", retry="3 20m")]
