-- Delete the depths before an instant.
-- Called by forget_counters and empty.
DELETE FROM redrive_depths WHERE at < :before
