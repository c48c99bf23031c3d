-- Notes which schema this database has.
-- Called by migrate, after the last step.
INSERT INTO redrive_meta (key, value) VALUES ('schema', :version::text)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
