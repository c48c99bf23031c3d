-- Answers what the clock shows, what is stored under a key, and the boot of the machine with the time since then.
-- Called by keep and difference. A server has a clock of its own, and no driver says here of which boot.
SELECT
    now,
    (SELECT value FROM redrive_meta WHERE key = :key::text) AS anchor,
    :boot::text AS boot,
    :ticks::bigint AS ticks
FROM redrive_clock
