-- Return the beginning of the first row after an instant that is to be rolled up; NULL if there is none.
-- Called by roll_up.
SELECT min(at) AS at FROM redrive_minutes
WHERE at >= :after::timestamptz AND at < :before::timestamptz
    AND (worker_id <> 0 OR at <> date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00'))
