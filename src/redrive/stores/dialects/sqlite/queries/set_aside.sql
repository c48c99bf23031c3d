-- Sets an attempt aside whose end cannot be decided, if its lease is still current, and answers that lease if so.
-- Called by sweep and lapse; the lease stays, and the next look is when the job is due again.
UPDATE redrive_jobs SET
    hold = 'bad_policy',
    note = :note,
    scheduled_at = :scheduled_at,
    slot = NULL
WHERE id = :job_id AND lease_id = :lease_id
RETURNING lease_id
