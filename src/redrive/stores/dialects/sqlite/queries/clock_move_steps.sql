-- Move the due times of steps by a time span.
-- Called by keep, when the time of the database follows a clock that was set.
UPDATE redrive_steps SET due_at = due_at + :step
WHERE due_at IS NOT NULL AND run_id IN (SELECT id FROM redrive_jobs WHERE state IN ('ready', 'running', 'waiting'))
