-- Count the instances of each machine by state and status.
-- Called by counts.
SELECT
    machine, state, status, count(*) AS number, count(job_id) AS busy,
    min(entered_at) AS since
FROM redrive_instances
WHERE :machine::text IS NULL OR machine = :machine::text
GROUP BY machine, state, status
ORDER BY machine, state, status
