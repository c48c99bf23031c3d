-- Return 1 if the schema has the tables of redrive, otherwise 0.
-- Called by migrate, before anything else.
SELECT (to_regclass('redrive_meta') IS NOT NULL)::integer
