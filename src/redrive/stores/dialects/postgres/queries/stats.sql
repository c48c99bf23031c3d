-- Count jobs by state.
-- Called by stats.
SELECT
    count(*) FILTER (WHERE state = 'ready' AND scheduled_at <= :now::timestamptz) AS due,
    count(*) FILTER (WHERE state = 'ready' AND scheduled_at > :now AND hold IS DISTINCT FROM 'retry') AS scheduled,
    count(*) FILTER (WHERE state = 'ready' AND scheduled_at > :now AND hold IS NOT DISTINCT FROM 'retry') AS retrying,
    count(*) FILTER (WHERE state = 'running') AS running,
    count(*) FILTER (WHERE state = 'waiting') AS waiting,
    count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
    count(*) FILTER (
        WHERE state = 'dead' AND caught_at IS NULL AND (origin IS NULL OR origin NOT LIKE 'refresh:%')
    ) AS dead,
    count(*) FILTER (
        WHERE state = 'dead' AND caught_at IS NOT NULL AND (origin IS NULL OR origin NOT LIKE 'refresh:%')
    ) AS caught,
    count(*) FILTER (WHERE state = 'cancelled') AS cancelled
FROM redrive_jobs
WHERE id > :after_id::bigint AND (:task::text IS NULL OR task = :task)
