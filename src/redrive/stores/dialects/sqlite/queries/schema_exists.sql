-- Answers 1 if this database has the tables of redrive, else 0.
-- Called by migrate, before anything else.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'redrive_meta'
