-- Return one job, and lock it until the transaction ends.
-- Called by cancel, retry and skip, which decide by its state. SQLite has one writer at a time and needs no lock.
SELECT
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error, expires_at,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
FROM redrive_jobs AS job
WHERE id = :id::bigint
FOR UPDATE
