-- Set aside attempts with ends that cannot be decided, each if its lease is still current, and return these leases.
-- Called by sweep and expire_waits; the lease stays, and the next check is when the job is due again.
-- many: rows
UPDATE redrive_jobs SET
    hold = 'bad_policy',
    note = :note,
    scheduled_at = :scheduled_at,
    slot = NULL
WHERE id = :job_id AND lease_id = :lease_id
RETURNING lease_id
