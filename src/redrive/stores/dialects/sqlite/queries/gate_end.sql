-- Write the end of a step at the gate, if the lease of the caller is current, and return its path.
-- Called by succeed, fail and extend.
UPDATE redrive_steps SET
    outcome = :outcome, at = :at, took = :took, tries = :tries, due_at = :due_at, result = :result, error = :error,
    history = :history
WHERE run_id = :run_id AND path = :path AND outcome = 'running' AND lease_id = :lease_id
RETURNING path
