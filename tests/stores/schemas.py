"""Descriptions of the schema of a database, by which two of them are compared."""

from __future__ import annotations

import sqlite3

import psycopg


def of_sqlite(cursor: sqlite3.Cursor) -> dict[tuple[str, str], str]:
    """Return the statements that created a database, without their layout and comments."""
    rows = cursor.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {(kind, name): " ".join(bare(sql).split()) for kind, name, sql in rows}


def bare(sql: str) -> str:
    """Return a statement without its comments."""
    return "\n".join(line.partition("--")[0] for line in sql.splitlines())


def of_postgres(connection: psycopg.Connection, schema: str) -> list[tuple[str, ...]]:
    """Return the catalog entries of a schema, without its name."""
    questions = """
        SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod) || a.attnotnull
            || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || a.attcollation
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
        LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = %(schema)s::text::regnamespace
        UNION ALL SELECT 'relation', relname, relkind::text, coalesce(reloptions::text, '')
        FROM pg_class WHERE relnamespace = %(schema)s::text::regnamespace
        UNION ALL SELECT 'check', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = %(schema)s::text::regnamespace
        UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = %(schema)s::text
        UNION ALL SELECT 'view', viewname, '', definition FROM pg_views WHERE schemaname = %(schema)s::text
        UNION ALL SELECT 'function', proname, proconfig::text, prosrc
        FROM pg_proc WHERE pronamespace = %(schema)s::text::regnamespace
        UNION ALL SELECT 'trigger', tgname, '', pg_get_triggerdef(t.oid)
        FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid AND NOT t.tgisinternal
        WHERE c.relnamespace = %(schema)s::text::regnamespace
    """
    connection.execute("SET search_path TO pg_catalog")
    rows = connection.execute(questions, {"schema": schema}).fetchall()
    return sorted(tuple(str(value).replace(schema, "here") for value in row) for row in rows)
