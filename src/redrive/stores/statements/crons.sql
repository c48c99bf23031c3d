-- The statements of operations/crons.py.

-- name: schedule_delete
-- Delete one schedule. Its occurrences stay until they are pruned, so that none is started twice.
-- both
DELETE FROM redrive_schedules
WHERE name = :name

-- name: occurrence_put
-- Insert decisions on occurrences, and return them without those that were started before.
-- many: rows
-- postgres
INSERT INTO redrive_occurrences AS known (schedule, occurs_at, decided_at, decision, job_id, note)
SELECT schedule, occurs_at, decided_at, decision, job_id, note
FROM unnest(
    :schedule::text[], :occurs_at::timestamptz[], :decided_at::timestamptz[], :decision::text[], :job_id::bigint[],
    :note::text[]
) AS given (schedule, occurs_at, decided_at, decision, job_id, note)
ON CONFLICT (schedule, occurs_at) DO UPDATE SET
    decided_at = excluded.decided_at,
    decision = excluded.decision,
    job_id = excluded.job_id,
    note = excluded.note
WHERE known.decision <> 'started'
RETURNING occurs_at
-- sqlite
INSERT INTO redrive_occurrences (schedule, occurs_at, decided_at, decision, job_id, note)
VALUES (:schedule, :occurs_at, :decided_at, :decision, :job_id, :note)
ON CONFLICT (schedule, occurs_at) DO UPDATE SET
    decided_at = excluded.decided_at,
    decision = excluded.decision,
    job_id = excluded.job_id,
    note = excluded.note
WHERE redrive_occurrences.decision <> 'started'
RETURNING occurs_at
