-- Writes what became of an occurrence, and answers it, unless it was started before.
-- Called by fire, trigger and backfill, and where the job ends that an occurrence waits for.
INSERT INTO redrive_occurrences (schedule, occurs_at, decided_at, decision, job_id, note)
VALUES (:schedule, :occurs_at, :decided_at, :decision, :job_id, :note)
ON CONFLICT (schedule, occurs_at) DO UPDATE SET
    decided_at = excluded.decided_at,
    decision = excluded.decision,
    job_id = excluded.job_id,
    note = excluded.note
WHERE redrive_occurrences.decision <> 'started'
RETURNING occurs_at
