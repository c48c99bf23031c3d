-- Write the ends of attempts into their jobs, each if its lease is still current, and return these leases.
-- Called by settle, sweep, complete and expire_waits for everything but a plain success.
-- many: rows
UPDATE redrive_jobs SET
    state = :state,
    hold = :hold,
    note = :note,
    attempt = :attempt,
    failures = :failures,
    crashes = :crashes,
    snoozes = :snoozes,
    by_rule = :by_rule,
    scheduled_at = coalesce(:scheduled_at, scheduled_at),
    last_delay = :last_delay,
    unreadable_at = :unreadable_at,
    finished_at = :finished_at,
    slot = NULL,
    success_lease_id = CASE WHEN :state = 'succeeded' THEN lease_id END,
    success_worker_id = CASE WHEN :state = 'succeeded' THEN worker_id END,
    lease_id = NULL,
    worker_id = NULL,
    fingerprint = CASE WHEN :state = 'succeeded' THEN NULL ELSE coalesce(:fingerprint, fingerprint) END,
    reason = CASE WHEN :state = 'succeeded' THEN NULL ELSE coalesce(:reason, reason) END,
    error = CASE WHEN :state = 'succeeded' THEN NULL ELSE coalesce(:error, error) END
WHERE id = :job_id AND lease_id = :lease_id AND state = :before
RETURNING :lease_id
