-- Store why a batch failed, and when it is tried again.
-- Called by failed.
UPDATE redrive_operations SET last_error = :error::text, next_at = :next_at::timestamptz
WHERE id = :id::bigint AND state = 'running'
