-- Return the ends of the child runs that these runs wait for; a call with an error was dropped.
-- Called by claim and arrived.
-- transaction: none
SELECT step.run_id, job.id AS job_id, job.state, answer.result, coalesce(job.error, job.note) AS error, job.reason
FROM redrive_steps AS step
CROSS JOIN LATERAL (SELECT id, state, error, note, reason FROM redrive_jobs WHERE id = step.ref OFFSET 0) AS job
LEFT JOIN LATERAL (
    SELECT result FROM redrive_results WHERE job_id = job.id AND job.state = 'succeeded' OFFSET 0
) AS answer ON true
WHERE step.run_id = ANY (:ids::bigint[]) AND step.outcome = 'waiting' AND step.kind = 'call'
    AND step.error IS NULL AND job.state IN ('succeeded', 'dead', 'cancelled')
