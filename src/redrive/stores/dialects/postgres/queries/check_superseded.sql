-- Return the unfinished attempts of items that have another attempt or none, except those that an operator retried.
-- Called by check.
SELECT job.id, 'job ' || job.id || ' is ' || job.state || ', but ' || thing.schedule || '/' || thing.key || ' waits for '
    || coalesce('job ' || thing.job_id, 'none') AS text, 'refreshes' AS rule
FROM redrive_jobs AS job
JOIN redrive_refreshes AS thing
    ON thing.schedule = substr(job.origin, 9, strpos(job.origin, '/') - 9)
    AND thing.key = substr(job.origin, strpos(job.origin, '/') + 1)
WHERE job.id > :after_id::bigint
    AND job.id <= :until::bigint
    AND job.origin LIKE 'refresh:%'
    AND job.state IN ('ready', 'running', 'waiting')
    AND job.redrives = 0
    AND (thing.job_id IS NULL OR thing.job_id <> job.id)
LIMIT :count::bigint
