-- Lets an attempt wait for an answer from outside if its lease is still current, and answers that lease if so.
-- Called by settle; the lease stays, because it names the answer. Said twice, the wait ends when it was first to end.
UPDATE redrive_jobs SET
    state = 'waiting',
    note = :note,
    scheduled_at = CASE WHEN state = 'waiting' THEN scheduled_at ELSE :scheduled_at END,
    crashes = 0,
    hold = NULL,
    slot = NULL
WHERE id = :job_id AND lease_id = :lease_id
RETURNING lease_id
