-- Return a run and the runs that it started, directly or not, as far as they have not ended.
-- Called by cancel.
WITH RECURSIVE family AS (
    SELECT job_id FROM redrive_runs WHERE job_id = :id::bigint
    UNION
    SELECT child.job_id
    FROM family
    CROSS JOIN LATERAL (SELECT job_id FROM redrive_runs WHERE parent_id = family.job_id OFFSET 0) AS child
)
SELECT job.id
FROM family
CROSS JOIN LATERAL (
    SELECT id FROM redrive_jobs WHERE id = family.job_id AND state IN ('ready', 'running', 'waiting') OFFSET 0
) AS job
ORDER BY job.id
