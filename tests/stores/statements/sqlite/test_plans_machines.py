"""Costs of the turns of machines, which do not depend on the number of busy instances and of their waiting events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from redrive.engine.machine import Ignored, InstanceRecord
from redrive.stores.operations.machines import turns
from redrive.stores.operations.machines.rows import MachineEvent, Start
from redrive.stores.operations.machines.send import Busy, send
from redrive.stores.operations.machines.turns import Known
from redrive.stores.query import Operation
from redrive.stores.statements import loader
from redrive.stores.values.sqlite import encode
from tests.stores.helpers import T0, new
from tests.stores.statements.sqlite.test_plans import FLAT, Counted

FEW, MANY = 1_000, 100_000

KNOWN = Known(("payment",), ("payment/created",), ("payment/Paid", "payment/Completed", "payment/Expired"))

ROWS = (
    # A half is busy, with a waiting event of each; a half is idle, with timeouts that are not due; of two machines.
    """
    INSERT INTO redrive_instances (
        machine, key, state, to_state, status, job_id, event, created_at, entered_at, timeout_at, timeout_event,
        timeout_payload, waiting
    )
    SELECT
        iif(value % 4 < 2, 'other', 'payment'), 'k' || value, 'created', iif(value % 2 = 0, 'paid', NULL), 'running',
        iif(value % 2 = 0, value, NULL), iif(value % 2 = 0, 'Paid', NULL), :now, :now, :now + 1000000 * value,
        'Expired', x'7b7d', iif(value % 2 = 0, 'event', NULL)
    FROM generated
    """,
    """
    INSERT INTO redrive_moves (id, machine, key, source, status, event, payload, sent_at, noted)
    SELECT job_id, machine, key, 'send', 'queued', 'Completed', x'7b7d', created_at, 1
    FROM redrive_instances WHERE job_id IS NOT NULL
    """,
    # One busy instance has as many events in its line.
    """
    INSERT INTO redrive_instances (
        machine, key, state, to_state, status, job_id, event, created_at, entered_at, waiting
    )
    VALUES ('payment', 'hot', 'created', 'paid', 'running', 1, 'Paid', :now, :now, 'event')
    """,
    """
    INSERT INTO redrive_moves (id, machine, key, source, status, event, payload, sent_at, noted)
    SELECT 1000000 + value, 'payment', 'hot', 'send', 'queued', 'Completed', x'7b7d', :now, 1
    FROM generated WHERE value % 2 = 0
    """,
    # Ten instances are due, ten are free for their events, ten have an event that is not noted.
    """
    INSERT INTO redrive_instances (
        machine, key, state, status, created_at, entered_at, timeout_at, timeout_event, timeout_payload, waiting
    )
    SELECT
        'payment', kind.value || generated.value, 'created', 'running', :now, :now,
        iif(kind.value = 'due', :now, NULL), iif(kind.value = 'due', 'Expired', NULL),
        iif(kind.value = 'due', x'7b7d', NULL), iif(kind.value = 'free', 'event', NULL)
    FROM generated, json_each('["due", "free", "new"]') AS kind WHERE generated.value <= 10
    """,
    """
    INSERT INTO redrive_moves (id, machine, key, source, status, event, payload, sent_at, noted)
    SELECT
        2000000 + rowid, machine, key, 'send', 'queued', 'Paid', x'7b7d', created_at, key LIKE 'free%'
    FROM redrive_instances WHERE key LIKE 'free%' OR key LIKE 'new%'
    """,
)


@pytest.fixture(scope="module")
def made() -> Iterator[dict[int, Counted]]:
    """Yield a small and a large database."""
    known = {count: Counted() for count in (FEW, MANY)}
    for count, database in known.items():
        database.connection.execute("CREATE TEMP TABLE generated (value INTEGER PRIMARY KEY)")
        database.connection.executemany("INSERT INTO generated VALUES (?)", ((n,) for n in range(1, count + 1)))
        for statement in ROWS:
            database.connection.execute(statement, encode({"now": T0}))
        database.connection.execute("UPDATE redrive_sequences SET value = 9000000 WHERE name = 'job'")
    yield known
    for database in known.values():
        database.connection.close()


def started(instance: InstanceRecord, event: str, payload: bytes) -> Start | Ignored:
    """Start timeouts and ignore other events."""
    return Start("paid", new()) if event == "Expired" else Ignored()


EVENT = MachineEvent("payment", "hot", "Paid", b"{}", "x")

ASKED: dict[str, Callable[[], Operation[Any]]] = {
    "a look": lambda: turns.look(KNOWN, now=T0),
    "a turn of five": lambda: turns.take_turns(KNOWN, started, budget=5, now=T0),
    "a turn of a free instance": lambda: turns.take_turn(KNOWN, "payment", "free10", started, now=T0),
    "an event that waits": lambda: send(EVENT, lambda _: cast("Start", None), busy=Busy.QUEUE, now=T0),
    "a look after them": lambda: turns.look(KNOWN, now=T0),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_turn_costs_the_same_with_many_waiting_events(made: dict[int, Counted], what: str):
    """With a hundred times as many instances and events, each operation takes at most 1.2 times the steps."""
    few, many = (made[count].steps(ASKED[what]()) for count in (FEW, MANY))

    assert 0 < few
    assert many <= few * FLAT + 20


INDEXES = {
    "machines_look": {
        "redrive_instances_timeouts (machine=? AND timeout_at>?)",
        "redrive_moves_new (machine=?)",
        "redrive_instances_turns (machine=?)",
        "redrive_moves_queued (machine=? AND key=?)",
        "redrive_moves_queued (machine=?)",
    },
    "machines_overdue": {"redrive_instances_timeouts (machine=? AND timeout_at>? AND timeout_at<?)"},
    "machines_free": {"redrive_instances_turns (machine=?)", "redrive_moves_queued (machine=? AND key=?)"},
    "moves_new": {"redrive_moves_new (machine=?)"},
    "moves_next": {"redrive_moves_queued (machine=? AND key=?)"},
}


@pytest.mark.parametrize("name", INDEXES)
def test_turns_read_the_indexes_that_were_made_for_them(made: dict[int, Counted], name: str):
    """Turns read the indexes of due timeouts, of free instances with events, and of events that are not noted."""
    params = dict.fromkeys(("now", "machine", "machines", "states", "events", "count", "key", "source"))
    rows = made[FEW].connection.execute(f"EXPLAIN QUERY PLAN {loader.statements('sqlite')[name]}", params).fetchall()
    read = {row[3].partition("INDEX ")[2] for row in rows if "redrive_" in row[3] and "autoindex" not in row[3]}

    assert INDEXES[name] == read - {""}
    assert [] == [row[3] for row in rows if "TEMP B-TREE" in row[3]]
