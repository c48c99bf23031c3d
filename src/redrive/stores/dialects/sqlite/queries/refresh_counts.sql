-- Count the items of each refresh by state.
-- Called by counts; it reads all items.
SELECT
    schedule,
    count(*) AS tracked,
    count(job_id) AS running,
    sum(
        NOT disabled_until_update
        AND (attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
    ) AS failing,
    sum(disabled_until_update) AS disabled,
    sum(paused) AS paused,
    sum(completed) AS completed
FROM redrive_refreshes
GROUP BY schedule
ORDER BY schedule
