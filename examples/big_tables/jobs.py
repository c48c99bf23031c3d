"""With two queues of redrive, in the database that has the tables.

`python jobs.py` starts what is due, and `redrive worker jobs:app` does the rest.
"""

from __future__ import annotations

import time

import download
import tables
from sqlalchemy.orm import Session

from redrive import App, Context

INPUT, OUTPUT = "bigtables-input", "bigtables-output"

app = App(f"sqlite:///{tables.PATH}", clock=tables.clock)


def start() -> int:
    """Start what is due; answer how many. The jobs are a part of the transaction: none is lost, and none too early."""
    with Session(tables.engine) as session, session.begin():
        orders = tables.start(session)
        work.enqueue_many(orders, using=session.connection().connection.driver_connection)
        return len(orders)


@app.task(queue=INPUT, timeout="1h")
def work(order: download.Request, context: Context) -> None:
    """Do the work, and end together with the answer. The job itself is not retried: that is the policy's affair."""
    answer = download.answer_to(order)
    with context.transaction() as connection:
        settle.enqueue(answer, using=connection)


@app.task(queue=OUTPUT, retry="5 100ms 10s")
def settle(answer: download.Result) -> None:
    """Write an answer. One that is written twice, because the worker died in between, is stale the second time."""
    with Session(tables.engine) as session, session.begin():
        tables.settle(session, answer)


def main() -> None:
    """Start what is due, for ever."""
    tables.Base.metadata.create_all(tables.engine)
    app.open()
    while True:
        start()
        time.sleep(1)


if __name__ == "__main__":
    main()
