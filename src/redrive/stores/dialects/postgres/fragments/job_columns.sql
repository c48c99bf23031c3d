    -- The fields of a job as it is read everywhere, of redrive_jobs AS job.
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error, expires_at, fingerprint,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
