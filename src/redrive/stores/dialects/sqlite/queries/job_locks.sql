-- Answers these jobs; until the end of the transaction nobody else changes them. SQLite has one writer at a time.
-- Called by sweep for the jobs of things whose deadlines have passed.
SELECT
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error,
    (SELECT document FROM redrive_policies WHERE digest = redrive_jobs.policy) AS policy
FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))
