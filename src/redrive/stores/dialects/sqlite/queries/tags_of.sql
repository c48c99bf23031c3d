-- Return the tags of jobs, with the ids of the jobs.
-- Called by tags.
SELECT job_id, tag FROM redrive_tags
WHERE job_id IN (SELECT value FROM json_each(:ids))
ORDER BY job_id, tag
