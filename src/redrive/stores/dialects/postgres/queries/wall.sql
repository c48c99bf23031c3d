-- Return the time that the clock shows, a stored value, and the boot of the machine with the time since then.
-- Called by keep and difference. The driver of SQLite passes the boot; a server's clock is never followed.
SELECT
    now,
    (SELECT value FROM redrive_meta WHERE key = :key::text) AS anchor,
    :boot::text AS boot,
    :ticks::bigint AS ticks
FROM redrive_clock
