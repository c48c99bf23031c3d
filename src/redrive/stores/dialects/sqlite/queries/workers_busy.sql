-- Return the number of attempts that each worker runs.
-- Called by circumstances and busy.
SELECT worker_id, count(*) AS running FROM redrive_jobs WHERE state = 'running' GROUP BY worker_id
