-- Count the items of each refresh, and those in trouble, both up to a limit.
-- Called by loads; it reads at most so many index entries for each refresh.
SELECT
    known.name AS schedule,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_refreshes WHERE schedule = known.name LIMIT :most::bigint
        ) AS counted
    ) AS tracked,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_refreshes
            WHERE schedule = known.name
                AND (disabled_until_update OR attempts_since_success > 1 OR (attempts_since_success = 1 AND job_id IS NULL))
            LIMIT :most::bigint
        ) AS counted
    ) AS troubled
FROM redrive_schedules AS known
WHERE known.kind = 'refresh'
ORDER BY known.name
