-- Return pending signals of runs that do not run, and lock these runs.
-- Called by wake.
SELECT signal.id, signal.run_id
    -- A signal of a running run stays pending: the transaction that parks the run may have looked before the signal was
    -- committed, and a later call finds it.
FROM redrive_signals AS signal
JOIN redrive_jobs AS job ON job.id = signal.run_id
WHERE signal.id = ANY (ARRAY(SELECT id FROM redrive_signals WHERE pending ORDER BY id LIMIT :count::bigint))
    AND signal.pending AND job.state <> 'running'
ORDER BY job.id
FOR UPDATE OF job SKIP LOCKED
