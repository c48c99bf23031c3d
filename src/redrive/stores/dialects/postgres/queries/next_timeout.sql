-- Return the instant, as clock does, when the first wait for an external completion is over, and the first expiry.
-- Called by until_expiry; it reads the first entries of two indexes.
-- transaction: none
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (SELECT scheduled_at FROM redrive_jobs WHERE state = 'waiting' ORDER BY scheduled_at LIMIT 1) AS over_at,
    (
        SELECT expires_at FROM redrive_jobs
        WHERE expires_at IS NOT NULL AND state = 'ready' AND started_at IS NULL
        ORDER BY expires_at LIMIT 1
    ) AS expires_at
FROM redrive_clock AS clock
