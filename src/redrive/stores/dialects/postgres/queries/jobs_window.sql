-- Return the number of the newest jobs in a range of ids, up to a limit, and the smallest of their ids.
-- Called by page, which reads no further.
SELECT count(*), coalesce(min(id), 0) FROM (
    SELECT id FROM redrive_jobs
    WHERE id > :after_id::bigint AND id < :before_id::bigint
    ORDER BY id DESC
    LIMIT :most::bigint
) AS newest
