-- Mark signals as received by these steps.
-- Called by settle for the waits that have ended.
UPDATE redrive_signals SET path = :path, pending = 0 WHERE id = :id AND run_id = :run_id AND path IS NULL
