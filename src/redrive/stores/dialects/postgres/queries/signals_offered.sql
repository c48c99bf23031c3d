-- Mark signals as offered to their runs.
-- Called by wake, after signals_wake.
UPDATE redrive_signals SET pending = false WHERE id = ANY (:ids::bigint[])
