-- The statements of operations/schema.py and of the migrator.

-- name: schema_exists
-- Return 1 if the schema has the tables of redrive, otherwise 0.
-- The migrator executes it before anything else.
-- postgres
SELECT (to_regclass('redrive_meta') IS NOT NULL)::integer
-- sqlite
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'redrive_meta'

-- name: meta
-- Return the value of one key of this database's metadata.
-- transaction: none
-- both
SELECT value FROM redrive_meta WHERE key = :key::text

-- name: schema_version
-- Return the schema version of this database, and the oldest version with code that can work with it, as key and value.
-- A worker asks from time to time. An error names the table, which may be that of another program.
-- transaction: none
-- both
SELECT redrive_meta.key, redrive_meta.value FROM redrive_meta WHERE redrive_meta.key IN ('schema', 'compatible')

-- name: schema_put
-- Write the schema version of this database, and the oldest version with code that can work with it.
-- The migrator executes it after the last step.
-- both
INSERT INTO redrive_meta (key, value) VALUES ('schema', :version::text), ('compatible', :compatible::text)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
