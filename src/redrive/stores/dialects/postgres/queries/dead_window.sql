-- Return the number of the oldest dead jobs that were not caught, up to a limit, and the largest of their ids.
-- Called by preview and by batches of bulk operations, which read no further at once if they search errors.
SELECT count(*), coalesce(max(id), 0) FROM (
    SELECT id FROM redrive_jobs
    WHERE state = 'dead' AND caught_at IS NULL AND id > :after_id::bigint AND id < :before_id::bigint
    ORDER BY id
    LIMIT :most::bigint
) AS oldest
