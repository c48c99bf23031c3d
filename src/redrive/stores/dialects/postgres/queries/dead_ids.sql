-- Return ids of dead jobs, caught or not or both, newest first, up to a limit.
-- Called by select and by page.
SELECT id FROM (
    (
        SELECT id FROM redrive_jobs
        WHERE state = 'dead' AND caught_at IS NULL AND :caught::boolean IS NOT TRUE
            AND id > :after_id::bigint AND id < :before_id::bigint
        ORDER BY id DESC
        LIMIT :most::bigint
    )
    UNION ALL
    (
        SELECT id FROM redrive_jobs
        WHERE caught_at IS NOT NULL AND :caught::boolean IS NOT FALSE
            AND id > :after_id::bigint AND id < :before_id::bigint
        ORDER BY id DESC
        LIMIT :most::bigint
    )
) AS found
ORDER BY id DESC
LIMIT :most::bigint
