-- Return pending signals of runs that do not run, and whether each announces a cancellation.
-- Called by wake.
SELECT signal.id, signal.run_id, signal.name = :child AND signal.key LIKE 'cancel.%' AS cancels
FROM redrive_signals AS signal
CROSS JOIN redrive_jobs AS job ON job.id = signal.run_id
WHERE signal.pending AND job.state <> 'running'
ORDER BY signal.id
LIMIT :count
