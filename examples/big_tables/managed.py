"""With all of it kept by redrive: no refresh columns, no queues, no loop.

`redrive worker managed:app`, as often as you like, is all that runs.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import download
from plan import POLICY

from redrive import App, Context, Disabled, GiveUp

PATH = Path(os.environ.get("TABLES_FOLDER", Path(__file__).parent)) / "managed.db"

app = App(f"sqlite:///{PATH}")


def open_database() -> sqlite3.Connection:
    """Connect to the tables, and create them if necessary."""
    app.open()
    connection = sqlite3.connect(PATH, timeout=20)
    connection.executescript("""
        CREATE TABLE IF NOT EXISTS big_tables (id INTEGER PRIMARY KEY, customer TEXT, input_url TEXT, lines INTEGER);
        CREATE TABLE IF NOT EXISTS letters (id INTEGER PRIMARY KEY, customer TEXT, text TEXT);
    """)
    return connection


def save(connection: sqlite3.Connection, customer: str, url: str, number: int | None = None) -> int:
    """Save a table that a customer has made or edited, and refresh it at once, also if it was disabled."""
    row = (number, customer, url)
    with connection:
        done = connection.execute("REPLACE INTO big_tables (id, customer, input_url) VALUES (?, ?, ?)", row)
        key = str(done.lastrowid)
        if not big_table.keeping(using=connection).track(key, url):
            big_table.update(key, using=connection)
    return int(key)


def remove(connection: sqlite3.Connection, number: int) -> None:
    """Remove a table that a customer has deleted."""
    with connection:
        connection.execute("DELETE FROM big_tables WHERE id = ?", (number,))
        big_table.untrack(str(number), using=connection)


@app.refresh(POLICY, on_disabled="write_letter", queue="bigtables-input")
def big_table(url: str, context: Context) -> None:
    """Do the work. What another attempt has taken the place of writes nothing: its transaction is refused."""
    try:
        lines = download.fetch(url)
    except LookupError:
        raise GiveUp(f"Provided URL is invalid: {url}") from None
    with context.transaction() as connection:
        connection.execute("UPDATE big_tables SET lines = ? WHERE id = ?", (lines, context.key))


@app.task(retry="5 1s 10s")
def write_letter(news: Disabled, context: Context) -> None:
    """Write to the customer of a table that was given up, once."""
    wanted = [action.text for action in news.actions if action.name == "email"]
    text = ". ".join(str(part) for part in [*wanted, news.reason])
    with context.transaction() as connection:
        connection.execute(
            "INSERT INTO letters (customer, text) SELECT customer, ? FROM big_tables WHERE id = ?", (text, news.key)
        )
