-- Cancel jobs that have not started in time, up to a budget, and return them; locked rows are left out.
-- Called by expire.
UPDATE redrive_jobs AS job SET
    state = 'cancelled',
    hold = NULL,
    note = :note::text,
    reason = :reason::text,
    finished_at = :now::timestamptz
WHERE id = ANY (ARRAY(
    SELECT id FROM redrive_jobs
    WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL AND expires_at <= :now
    ORDER BY expires_at
    LIMIT :budget::bigint
    FOR UPDATE SKIP LOCKED
))
RETURNING
-- include job_columns.sql
