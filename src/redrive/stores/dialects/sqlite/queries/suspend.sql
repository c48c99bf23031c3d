-- Let attempts wait for an external completion, each if its lease is still current, and return these leases.
-- Called by settle; the lease stays, because it names the completion. If repeated, the first end of the wait stays.
-- many: rows
UPDATE redrive_jobs SET
    state = 'waiting',
    note = :note,
    scheduled_at = CASE WHEN state = 'waiting' THEN scheduled_at ELSE :scheduled_at END,
    crashes = 0,
    hold = NULL,
    slot = NULL
WHERE id = :job_id AND lease_id = :lease_id
RETURNING lease_id
