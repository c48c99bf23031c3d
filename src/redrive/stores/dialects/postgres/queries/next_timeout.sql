-- Return the instant, as clock does, and when the first wait for an external completion is over.
-- Called by until_expiry; it reads the first entry of an index.
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (SELECT scheduled_at FROM redrive_jobs WHERE state = 'waiting' ORDER BY scheduled_at LIMIT 1) AS over_at
FROM redrive_clock AS clock
