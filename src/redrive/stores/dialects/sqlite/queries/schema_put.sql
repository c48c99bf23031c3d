-- Write the schema version of this database, and the oldest version with code that can work with it.
-- Called by migrate, after the last step.
INSERT INTO redrive_meta (key, value) VALUES ('schema', :version), ('compatible', :compatible)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
