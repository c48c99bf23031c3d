-- End the pause of a run.
-- Called by resume.
UPDATE redrive_runs SET paused_at = NULL, paused_until = NULL, paused_why = NULL
WHERE job_id = :id AND paused_at IS NOT NULL
RETURNING job_id
