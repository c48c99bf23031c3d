-- Delete the depths before an instant, but for those at whole spans of a width.
-- Called by forget_counters.
DELETE FROM redrive_depths WHERE at < :before::timestamptz AND at <> date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00')
