-- Delete the depths before an instant, but for those at whole spans of a width.
-- Called by forget_counters.
DELETE FROM redrive_depths WHERE at < :before AND at % :width <> 0
