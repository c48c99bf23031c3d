-- Pause a run.
-- Called by pause.
UPDATE redrive_runs SET paused_at = coalesce(paused_at, :now::timestamptz), paused_until = :until::timestamptz, paused_why = :why::text
WHERE job_id = :id::bigint
