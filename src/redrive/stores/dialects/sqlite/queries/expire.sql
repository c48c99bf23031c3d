-- Cancel jobs that have not started in time, up to a budget, and return them; locked rows are left out.
-- Called by expire.
UPDATE redrive_jobs SET
    state = 'cancelled',
    hold = NULL,
    note = :note,
    reason = :reason,
    finished_at = :now
WHERE id IN (
    SELECT id FROM redrive_jobs
    WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL AND expires_at <= :now
    ORDER BY expires_at
    LIMIT :budget
)
RETURNING
-- include job_columns.sql
