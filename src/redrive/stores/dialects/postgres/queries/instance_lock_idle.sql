-- Lock an instance unless a transition of it runs; return it, and whether it is locked.
-- Called by send.
WITH idle AS MATERIALIZED (
    SELECT * FROM redrive_instances
    WHERE machine = :machine::text AND key = :key::text AND (job_id IS NULL OR status = 'failed')
    FOR NO KEY UPDATE
)
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting, true AS locked
FROM idle
UNION ALL
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting, false AS locked
FROM redrive_instances
WHERE machine = :machine::text AND key = :key::text AND NOT EXISTS (SELECT 1 FROM idle)
