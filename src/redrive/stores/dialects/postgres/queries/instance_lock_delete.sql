-- Lock an instance to delete it, after the open transactions that put events into its line; return it, if it exists.
-- Called by delete.
SELECT
    machine, key, state, to_state, status, job_id, event, moves, created_at, entered_at, timeout_at, timeout_event,
    timeout_payload, data, error, version, waiting
FROM redrive_instances
WHERE machine = :machine::text AND key = :key::text
FOR UPDATE
