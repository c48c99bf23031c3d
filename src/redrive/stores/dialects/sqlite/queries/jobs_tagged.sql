-- Return ids of jobs with a tag, oldest first, up to a limit.
-- Called by select, to find whether they are few.
SELECT job_id FROM redrive_tags
WHERE tag = :tag AND job_id > :after_id AND job_id < :before_id
ORDER BY job_id
LIMIT :most
