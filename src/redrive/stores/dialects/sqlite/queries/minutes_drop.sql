-- Delete the sums of a span.
-- Called by roll_up, forget_counters and empty.
DELETE FROM redrive_minutes WHERE at >= :start AND at < :until
