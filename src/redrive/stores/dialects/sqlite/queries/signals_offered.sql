-- Mark signals as offered to their runs.
-- Called by wake, after signals_wake.
UPDATE redrive_signals SET pending = 0 WHERE id IN (SELECT value FROM json_each(:ids))
