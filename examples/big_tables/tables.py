"""Tables of customers that must stay fresh: what the two ways with a table of your own share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from download import Request, Result
from plan import POLICY
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from redrive.clock import Clock, SystemClock
from redrive.contrib.refresh import MovedRow, TableRefreshes
from redrive.contrib.refresh.sqlalchemy import RefreshColumns, refreshes
from redrive.schedule import RefreshEffect, RefreshOutcome

PATH = Path(os.environ.get("TABLES_FOLDER", Path(__file__).parent)) / "tables.db"

engine = create_engine(f"sqlite:///{PATH}", connect_args={"timeout": 20})
clock: Clock = SystemClock()


class Base(DeclarativeBase):
    """What is kept."""


class BigTable(RefreshColumns, Base):
    """Something that a customer wants to be fresh."""

    __tablename__ = "big_tables"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    input_url: Mapped[str]
    lines: Mapped[int | None]


class Letter(Base):
    """A message to a customer, to be sent by an e-mail service."""

    __tablename__ = "letters"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    text: Mapped[str]


def moves(session: Session) -> TableRefreshes[BigTable]:
    """Yield the refreshes, within a transaction."""
    return refreshes(session, BigTable, POLICY, clock=clock)


def save(session: Session, table: BigTable) -> None:
    """Save a table that a customer has made or edited, and refresh it at once, also if it was disabled."""
    session.add(table)
    session.flush()  # it has a number now
    moves(session).update(table.id)


def start(session: Session) -> list[Request]:
    """Find what has timed out, start what is due, and answer what is to be sent to the workers."""
    found = moves(session)
    moved = [*found.sweep(), *found.start_due()]
    tell(session, moved)
    started = [each for each in moved if each.outcome is RefreshOutcome.STARTED]
    return [Request(each.row.id, str(each.state.attempt_uid), each.row.input_url) for each in started]


def settle(session: Session, answer: Result) -> None:
    """Write the answer of a worker, if it belongs to the current attempt."""
    found, key, uid = moves(session), answer.big_table, answer.attempt_uid
    if answer.lines is None:
        moved = found.failure(key, uid=uid, permanent=answer.hopeless)
    else:
        moved = found.success(key, uid=uid)
    if moved is None:  # another attempt knows better, or the customer has deleted the table
        return
    moved.row.lines = answer.lines if answer.lines is not None else moved.row.lines
    tell(session, [moved])


def tell(session: Session, moved: Iterable[MovedRow[BigTable]]) -> None:
    """Write to the customers of those that were given up, in the transaction that gives them up: once."""
    for each in moved:
        if RefreshEffect.NOTIFY in each.effects:
            wanted = [action.text for action in POLICY.on_give_up if action.name == "email"]
            text = ". ".join(str(part) for part in [*wanted, each.state.disabled_reason])
            session.add(Letter(customer=each.row.customer, text=text))
