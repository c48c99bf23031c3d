-- Return pending signals of runs that do not run.
-- Called by wake.
SELECT signal.id, signal.run_id
FROM redrive_signals AS signal
CROSS JOIN redrive_jobs AS job ON job.id = signal.run_id
WHERE signal.pending AND job.state <> 'running'
ORDER BY signal.id
LIMIT :count
