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
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error, expires_at,
    -- In RETURNING, SQLite uses an index for a text only if it is an expression: hence the plus.
    (SELECT document FROM redrive_policies WHERE digest = +redrive_jobs.policy) AS policy
