-- Return the beginning of the first row after an instant that is to be rolled up; NULL if there is none.
-- Called by roll_up.
SELECT min(at) AS at FROM redrive_minutes
WHERE at >= :after AND at < :before AND (worker_id <> 0 OR at % :width <> 0)
