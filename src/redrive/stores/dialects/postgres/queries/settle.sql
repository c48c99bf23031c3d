-- Write the ends of attempts into their jobs, each if its lease is still current, and return these leases.
-- Called by settle, sweep, complete and expire_waits for everything but a plain success.
UPDATE redrive_jobs AS job SET
    state = given.state,
    hold = given.hold,
    note = given.note,
    attempt = given.attempt,
    failures = given.failures,
    crashes = given.crashes,
    snoozes = given.snoozes,
    by_rule = given.by_rule::integer[],
    scheduled_at = coalesce(given.scheduled_at, job.scheduled_at),
    last_delay = given.last_delay,
    unreadable_at = given.unreadable_at,
    finished_at = given.finished_at,
    slot = NULL,
    success_lease_id = CASE WHEN given.state = 'succeeded' THEN job.lease_id END,
    success_worker_id = CASE WHEN given.state = 'succeeded' THEN job.worker_id END,
    lease_id = NULL,
    worker_id = NULL,
    fingerprint = CASE WHEN given.state = 'succeeded' THEN NULL ELSE coalesce(given.fingerprint, job.fingerprint) END,
    reason = CASE WHEN given.state = 'succeeded' THEN NULL ELSE coalesce(given.reason, job.reason) END,
    error = CASE WHEN given.state = 'succeeded' THEN NULL ELSE coalesce(given.error, job.error) END
FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :state::text[], :hold::text[], :note::text[], :attempt::integer[],
    :failures::integer[], :crashes::integer[], :snoozes::integer[], :by_rule::text[], :scheduled_at::timestamptz[],
    :last_delay::interval[], :finished_at::timestamptz[], :reason::text[], :error::text[],
    :before::text[], :unreadable_at::timestamptz[], :fingerprint::text[]
) AS given (
    job_id, lease_id, state, hold, note, attempt, failures, crashes, snoozes, by_rule, scheduled_at, last_delay,
    finished_at, reason, error, before, unreadable_at, fingerprint
)
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.lease_id = given.lease_id AND job.state = given.before
RETURNING given.lease_id
