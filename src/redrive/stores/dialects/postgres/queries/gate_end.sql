-- Write the end of a step at the gate, if the lease of the caller is current, and return its path.
-- Called by succeed, fail and extend.
UPDATE redrive_steps SET
    outcome = :outcome::text, at = :at::timestamptz, took = :took::interval, tries = :tries::integer, due_at = :due_at::timestamptz,
    result = :result::bytea, error = :error::text, history = :history::text
WHERE run_id = :run_id::bigint AND path = :path::text AND outcome = 'running' AND lease_id = :lease_id::bigint
RETURNING path
