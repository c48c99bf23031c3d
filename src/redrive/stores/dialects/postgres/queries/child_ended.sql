-- Send the signal of the end of these runs to the runs that wait for them.
-- Called when runs end, in the same transaction; it locks no run.
INSERT INTO redrive_signals (run_id, name, key, at, pending)
SELECT parent_id, :name::text, job_id::text || '.' || :now::timestamptz, :now::timestamptz, true
FROM redrive_runs
-- As in settle_succeeded: the planner must not use the index of called runs.
WHERE job_id = ANY (:ids::bigint[]) AND coalesce(parent_id, 0) <> 0
ON CONFLICT (run_id, name, key) WHERE key IS NOT NULL DO NOTHING
