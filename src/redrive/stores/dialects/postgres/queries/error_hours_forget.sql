-- Delete the failures of old hours.
-- Called by forget_counters and empty.
DELETE FROM redrive_error_hours WHERE at < :before::timestamptz
