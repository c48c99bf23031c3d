-- Return the latest catch job of each of these jobs that has one.
-- Called by delete, which keeps a job as long as its catch job stays.
SELECT child.parent_id, child.id, child.task, child.state
FROM redrive_jobs AS child
WHERE child.parent_id = ANY (:ids::bigint[])
    AND child.id = (SELECT max(id) FROM redrive_jobs WHERE parent_id = child.parent_id)
