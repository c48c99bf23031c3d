-- Make the waiting steps of a job due now for their next tries; sleeps and other waits keep their times.
-- Called by retry.
UPDATE redrive_steps SET due_at = :now::timestamptz
WHERE run_id = :run_id::bigint AND outcome = 'waiting' AND tries > 0 AND due_at > :now
