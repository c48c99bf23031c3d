-- Replace the failure of a step or of an undo by a value, and return its path.
-- Called by supply.
UPDATE redrive_steps SET outcome = 'ok', result = :result, error = NULL, due_at = NULL, at = :now
WHERE run_id = :run_id AND path = :path AND outcome IN ('failed', 'waiting') AND kind IN ('step', 'call', 'undo')
RETURNING path
