-- Writes the end of one attempt into its job if the lease is still current, and answers that lease if so.
-- Called by settle, sweep, answer and lapse for everything but a plain success.
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
    lease_id = NULL,
    worker_id = NULL,
    reason = CASE WHEN :state = 'succeeded' THEN NULL ELSE coalesce(:reason, reason) END,
    error = CASE WHEN :state = 'succeeded' THEN NULL ELSE coalesce(:error, error) END
WHERE id = :job_id AND lease_id = :lease_id AND state = :before
RETURNING :lease_id
