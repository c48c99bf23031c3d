-- Set aside attempts with ends that cannot be decided, each if its lease is still current, and return these leases.
-- Called by sweep and expire_waits; the lease stays, and the next check is when the job is due again.
UPDATE redrive_jobs AS job SET
    hold = 'bad_policy',
    note = given.note,
    scheduled_at = given.scheduled_at,
    slot = NULL
FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :scheduled_at::timestamptz[], :note::text[]
) AS given (job_id, lease_id, scheduled_at, note)
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.lease_id = given.lease_id
RETURNING job.lease_id
