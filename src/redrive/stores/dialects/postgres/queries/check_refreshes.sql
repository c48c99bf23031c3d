-- Return the tracked items with an attempt that has ended without an update of the item, or belongs to another item.
-- Called by check; it reads the items that run or fail, and no others.
SELECT thing.job_id AS id, thing.schedule || '/' || thing.key || ' waits for job ' || thing.job_id || ', which '
    || CASE
        WHEN job.id IS NULL THEN 'is not there'
        WHEN job.origin = 'refresh:' || thing.schedule || '/' || thing.key THEN 'is ' || job.state
        ELSE 'is for ' || coalesce(job.origin, 'nothing')
    END AS text,
    'refreshes' AS rule
FROM redrive_refreshes AS thing
LEFT JOIN redrive_jobs AS job ON job.id = thing.job_id
WHERE thing.sweep_at IS NOT NULL
    AND thing.job_id IS NOT NULL
    AND (
        job.id IS NULL
        OR job.state IN ('succeeded', 'dead', 'cancelled')
        OR job.origin IS NULL
        OR job.origin <> 'refresh:' || thing.schedule || '/' || thing.key
    )
LIMIT :count::bigint
