-- Delete jobs that had ended at the survey, with all their rows, and return them.
-- Called by prune, delete and archived.
DELETE FROM redrive_jobs AS job
WHERE job.id = ANY (:ids::bigint[])
    AND job.state IN ('succeeded', 'dead', 'cancelled')
    AND job.finished_at <= :at::timestamptz
    AND NOT EXISTS (SELECT FROM redrive_jobs AS child WHERE child.parent_id = job.id OFFSET 0)
RETURNING job.id
