-- Return the tags of jobs, with the ids of the jobs.
-- Called by tags.
SELECT job_id, tag FROM redrive_tags
WHERE job_id = ANY (:ids::bigint[])
ORDER BY job_id, tag
