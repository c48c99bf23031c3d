-- Return ids of jobs with a tag, oldest first, up to a limit.
-- Called by select, to find whether they are few.
SELECT job_id FROM redrive_tags
WHERE tag = :tag::text AND job_id > :after_id::bigint AND job_id < :before_id::bigint
ORDER BY job_id
LIMIT :most::bigint
