-- End a job that is not final; the worker that runs it loses its lease.
-- Called by cancel.
UPDATE redrive_jobs SET
    state = 'cancelled',
    hold = NULL,
    note = :note::text,
    finished_at = :now::timestamptz,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE id = :id::bigint AND state IN ('ready', 'running', 'waiting')
RETURNING id
