-- Return the ends of the child runs that these runs wait for; a call with an error was dropped.
-- Called by claim and arrived.
SELECT step.run_id, job.id AS job_id, job.state, answer.result, coalesce(job.error, job.note) AS error, job.reason
FROM redrive_steps AS step
JOIN redrive_jobs AS job ON job.id = step.ref
LEFT JOIN redrive_results AS answer ON answer.job_id = job.id AND job.state = 'succeeded'
WHERE step.run_id IN (SELECT value FROM json_each(:ids)) AND step.outcome = 'waiting' AND step.kind = 'call'
    AND step.error IS NULL AND job.state IN ('succeeded', 'dead', 'cancelled')
