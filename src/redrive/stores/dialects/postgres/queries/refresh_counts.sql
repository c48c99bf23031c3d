-- Count the items of each refresh by state.
-- Called by counts; it reads all items.
SELECT
    schedule,
    count(*) AS tracked,
    count(job_id) AS running,
    count(*) FILTER (
        WHERE NOT disabled_until_update
            AND (attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
    ) AS failing,
    count(*) FILTER (WHERE disabled_until_update) AS disabled,
    count(*) FILTER (WHERE paused) AS paused,
    count(*) FILTER (WHERE completed) AS completed
FROM redrive_refreshes
GROUP BY schedule
ORDER BY schedule
