-- The statements of operations/runs/again.py.

-- name: runs_again
-- Withdraw the requests to cancel or pause these runs.
-- The jobs of the runs start again.
-- both
UPDATE redrive_runs SET
    cancel_at = NULL, cancel_why = NULL, paused_at = NULL, paused_until = NULL, paused_why = NULL
WHERE job_id = ANY (:ids::bigint[]) AND (cancel_at IS NOT NULL OR paused_at IS NOT NULL)

-- name: signals_again
-- Delete the signals that failed waits have received, before their rows go.
-- Another signal may have the key of one.
-- both
DELETE FROM redrive_signals
WHERE run_id = :run_id::bigint AND path IN (
    SELECT path FROM redrive_steps
    WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[]) AND kind = 'wait' AND outcome = 'failed'
)

-- name: steps_again
-- Delete rows of a run that starts again.
-- both
DELETE FROM redrive_steps WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])

-- name: steps_renew
-- Let steps of a run wait for another execution.
-- For steps that were undone, and for failures with kept steps behind them.
-- both
UPDATE redrive_steps SET
    outcome = 'waiting',
    tries = 0,
    due_at = :now::timestamptz,
    digest = NULL,
    result = NULL,
    error = :error::text,
    history = NULL,
    ref = CASE WHEN kind = 'wait' THEN NULL ELSE ref END
WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])

-- name: steps_loosen
-- Keep finished steps of a run whatever arguments the code passes to them now.
-- For steps behind those that are executed anew.
-- both
UPDATE redrive_steps SET digest = NULL WHERE run_id = :run_id::bigint AND path = ANY (:paths::text[])
