-- End a job that is not final; the worker that runs it loses its lease.
-- Called by cancel.
UPDATE redrive_jobs SET
    state = 'cancelled',
    hold = NULL,
    note = :note,
    finished_at = :now,
    slot = NULL,
    lease_id = NULL,
    worker_id = NULL
WHERE id = :id AND state IN ('ready', 'running', 'waiting')
RETURNING id
