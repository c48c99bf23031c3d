-- Send the signal of the end of these runs to the runs that wait for them.
-- Called when runs end, in the same transaction.
INSERT INTO redrive_signals (run_id, name, key, at, pending)
SELECT parent_id, :name, job_id || '.' || :now, :now, 1
FROM redrive_runs
WHERE job_id IN (SELECT value FROM json_each(:ids)) AND parent_id IS NOT NULL
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
