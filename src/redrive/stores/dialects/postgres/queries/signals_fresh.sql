-- Return pending signals of runs that do not run, and whether each announces a cancellation, and lock these runs.
-- Called by wake.
SELECT signal.id, signal.run_id, signal.name = :child::text AND signal.key LIKE 'cancel.%' AS cancels
    -- A signal of a running run stays pending: the transaction that parks the run may have looked before the signal was
    -- committed, and a later call finds it.
FROM redrive_signals AS signal
CROSS JOIN LATERAL (
    SELECT id FROM redrive_jobs WHERE id = signal.run_id AND state <> 'running' FOR UPDATE SKIP LOCKED
) AS job
WHERE signal.id = ANY (ARRAY(SELECT id FROM redrive_signals WHERE pending ORDER BY id LIMIT :count::bigint))
    AND signal.pending
