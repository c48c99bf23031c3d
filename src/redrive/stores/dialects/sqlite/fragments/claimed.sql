    -- A claim, of redrive_jobs.
    id, lease_id, task, queue, priority, worker_id, attempt, failures, crashes, snoozes,
    coalesce(by_rule, '[]') AS by_rule,
    last_delay, started_at, claimed_at, parent_id, partition, key, key_until, origin, scheduled_at, unreadable_at,
    salt,
    (SELECT payload FROM redrive_payloads WHERE job_id = redrive_jobs.id) AS payload,
    -- In RETURNING, SQLite uses an index for a text only if it is an expression: hence the plus.
    (SELECT document FROM redrive_policies WHERE digest = +redrive_jobs.policy) AS policy
