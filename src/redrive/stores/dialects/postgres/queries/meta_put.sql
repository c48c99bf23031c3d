-- Write a value of this database's metadata.
-- Called by declare and keep.
INSERT INTO redrive_meta (key, value)
SELECT key, value FROM unnest(:key::text[], :value::text[]) AS given (key, value) ORDER BY key
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE redrive_meta.value <> excluded.value
