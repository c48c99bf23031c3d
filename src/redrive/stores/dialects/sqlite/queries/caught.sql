-- Stamps a dead job as caught.
-- Called by settle when its catch job succeeded.
UPDATE redrive_jobs SET caught_at = :now WHERE id = :job_id AND state = 'dead' AND caught_at IS NULL
