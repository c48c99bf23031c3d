-- Pause a run.
-- Called by pause.
UPDATE redrive_runs SET paused_at = coalesce(paused_at, :now), paused_until = :until, paused_why = :why WHERE job_id = :id
