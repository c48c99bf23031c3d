-- Return the documents of jobs that their errors may repeat, each with the job and its kind.
-- Called by documents and select; a machine has its transition's id as that of a move.
SELECT job_id, 'payload' AS kind, payload AS document FROM redrive_payloads
WHERE job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT job_id, 'result', result FROM redrive_results
WHERE job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT job_id, 'progress', CAST(details AS BLOB) FROM redrive_progress
WHERE job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT job_id, 'values', set_values FROM redrive_runs
WHERE set_values IS NOT NULL AND job_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT run_id, 'step', result FROM redrive_steps
WHERE result IS NOT NULL AND run_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT run_id, 'signal', payload FROM redrive_signals
WHERE payload IS NOT NULL AND run_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT move.id, 'data', instance.data FROM redrive_moves AS move
INNER JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE instance.data IS NOT NULL AND move.id IN (SELECT value FROM json_each(:ids))
