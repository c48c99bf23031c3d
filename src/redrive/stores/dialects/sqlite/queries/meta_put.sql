-- Notes something about this database under a key.
-- Called by declare.
INSERT INTO redrive_meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE redrive_meta.value <> excluded.value
