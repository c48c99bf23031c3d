-- Return ids of dead jobs, caught or not or both, newest first, up to a limit.
-- Called by select and by page.
SELECT id FROM (
    SELECT id FROM (
        SELECT id FROM redrive_jobs
        WHERE state = 'dead' AND caught_at IS NULL AND :caught IS NOT 1 AND id > :after_id AND id < :before_id
        ORDER BY id DESC
        LIMIT :most
    )
    UNION ALL
    SELECT id FROM (
        SELECT id FROM redrive_jobs
        WHERE caught_at IS NOT NULL AND :caught IS NOT 0 AND id > :after_id AND id < :before_id
        ORDER BY id DESC
        LIMIT :most
    )
)
ORDER BY id DESC
LIMIT :most
