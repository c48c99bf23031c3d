"""The application: `uvicorn shop:app`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import provider
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, PositiveInt
from sqlalchemy import ForeignKey, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from redrive import App, Context
from redrive.contrib.fastapi import Jobs, refusals, serving

PATH = Path(os.environ.get("SHOP_FOLDER", Path(__file__).parent)) / "shop.db"

jobs = App(f"sqlite:///{PATH}")
engine = create_engine(f"sqlite:///{PATH}", connect_args={"timeout": 20})


class Base(DeclarativeBase):
    """What the shop keeps."""


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]
    job: Mapped[int | None]


class Payment(Base):
    """Money that was taken. No constraint keeps an order from being paid for twice; the transaction does."""

    __tablename__ = "payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    cents: Mapped[int]


@jobs.task(retry="8 200ms 1m", timeout="2m")
def charge(order_id: int, cents: int, context: Context) -> None:
    """Take the money for an order: the provider may be asked twice, and takes it once; so do we."""
    provider.charge(cents, key=context.idempotency_key)
    with context.transaction() as connection:
        connection.execute("INSERT INTO payments (order_id, cents) VALUES (?, ?)", (order_id, cents))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
    """Make the tables, open the jobs, and run them here."""
    Base.metadata.create_all(engine)
    async with serving(jobs, worker=True, shutdown_timeout="5s"):
        yield {"redrive": jobs}


app = FastAPI(lifespan=lifespan, exception_handlers=refusals())


def session() -> Iterator[Session]:
    """Yield a session for one request."""
    with Session(engine) as found:
        yield found


Database = Annotated[Session, Depends(session)]


class NewOrder(BaseModel):
    """What the customer sends."""

    cents: PositiveInt


@app.post("/orders", status_code=202)
def place(new: NewOrder, database: Database) -> dict[str, int]:
    """Store the order, and the job that charges for it, both or neither."""
    with database.begin():
        order = Order(cents=new.cents)
        database.add(order)
        database.flush()  # it has a number now
        job = charge.enqueue(order.id, new.cents, using=database.connection().connection.driver_connection)
        order.job = job.id
        return {"order": order.id, "job": job.id}


@app.get("/orders/{number}")
def look(number: int, database: Database, jobs: Jobs) -> dict[str, Any]:
    """Return the state of an order."""
    order = database.get(Order, number)
    if order is None or order.job is None:
        raise HTTPException(404, "there is no such order")
    payments = database.scalars(select(Payment).where(Payment.order_id == number)).all()
    return {"order": number, "cents": order.cents, "payments": len(payments), "job": jobs.job(order.job).state}
