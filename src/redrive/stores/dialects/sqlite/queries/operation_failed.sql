-- Store why a batch failed, and when it is tried again.
-- Called by failed.
UPDATE redrive_operations SET last_error = :error, next_at = :next_at WHERE id = :id AND state = 'running'
