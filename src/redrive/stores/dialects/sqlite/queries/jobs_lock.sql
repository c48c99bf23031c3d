-- Return these jobs, in the order of their ids.
-- Called by cancel for the family of a run. SQLite needs no lock.
SELECT
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error, expires_at,
    (SELECT document FROM redrive_policies WHERE digest = redrive_jobs.policy) AS policy
FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))
