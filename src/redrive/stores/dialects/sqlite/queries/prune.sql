-- Delete jobs that had ended at the survey, with all their rows, and return them.
-- Called by prune, delete and archived.
DELETE FROM redrive_jobs
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state IN ('succeeded', 'dead', 'cancelled')
    AND finished_at <= :at
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs AS child WHERE child.parent_id = redrive_jobs.id)
RETURNING id
