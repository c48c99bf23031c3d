-- Move the deadlines of the running attempts of refreshes by a time span.
-- Called by keep, when the time of the database follows a clock that was set. A server's clock is never moved.
UPDATE redrive_refreshes SET deadline_at = deadline_at + :step, sweep_at = sweep_at + :step
WHERE job_id IS NOT NULL
