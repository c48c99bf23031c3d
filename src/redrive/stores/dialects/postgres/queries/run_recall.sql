-- Take a run back from its worker, which loses its lease, so that another pass begins with its undos.
-- Called by cancel.
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'parked',
    note = :note::text,
    scheduled_at = :now::timestamptz,
    attempt = CASE WHEN state = 'running' THEN attempt - 1 ELSE attempt END,
    crashes = 0,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE id = :id::bigint AND state IN ('ready', 'running')
RETURNING id
