"""The SQL of SQLite 3.40 and newer, for the drivers `sqlite` and in-memory (and Turso, which has the same SQL)."""
