-- Return 1 if the schema has the tables of redrive, otherwise 0.
-- Called by migrate, before anything else.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'redrive_meta'
