-- Return for each of these jobs the state of its family, which is a dead job and its catch jobs.
-- Called by redrive and retry, to explain why a job must stay as it is: one death is caught once.
SELECT
    job.id,
    EXISTS (
        SELECT FROM redrive_jobs AS child
        WHERE child.parent_id = job.id AND child.state IN ('ready', 'running', 'waiting')
        OFFSET 0
    ) AS catching,
    EXISTS (
        SELECT FROM redrive_jobs AS twin
        WHERE twin.parent_id = job.parent_id AND twin.id <> job.id AND twin.state IN ('ready', 'running', 'waiting')
        OFFSET 0
    ) AS twin,
    job.parent_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM redrive_jobs AS parent
        WHERE parent.id = job.parent_id AND parent.state = 'dead' AND parent.caught_at IS NULL
        OFFSET 0
    ) AS pointless
FROM redrive_jobs AS job
WHERE job.id = ANY (:ids::bigint[])
