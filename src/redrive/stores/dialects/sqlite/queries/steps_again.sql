-- Delete rows of a run that starts again.
-- Called by redrive and retry, when the job of the run starts again.
DELETE FROM redrive_steps WHERE run_id = :run_id AND path IN (SELECT value FROM json_each(:paths))
