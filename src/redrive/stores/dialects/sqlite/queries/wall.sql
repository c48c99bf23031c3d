-- Answers what the clock shows, what is stored under a key, and the boot of the machine with the time since then.
-- Called by keep and difference. The driver says which boot it is, at the moment at which it reads the clock.
SELECT
    now,
    (SELECT value FROM redrive_meta WHERE key = :key) AS anchor,
    :boot AS boot,
    :ticks AS ticks
FROM redrive_clock
