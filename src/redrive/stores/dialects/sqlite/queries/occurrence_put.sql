-- Insert decisions on occurrences, and return them without those that were started before.
-- Called by fire, trigger and backfill, and when the predecessor of a queued occurrence ends.
-- many: rows
INSERT INTO redrive_occurrences (schedule, occurs_at, decided_at, decision, job_id, note)
VALUES (:schedule, :occurs_at, :decided_at, :decision, :job_id, :note)
ON CONFLICT (schedule, occurs_at) DO UPDATE SET
    decided_at = excluded.decided_at,
    decision = excluded.decision,
    job_id = excluded.job_id,
    note = excluded.note
WHERE redrive_occurrences.decision <> 'started'
RETURNING occurs_at
