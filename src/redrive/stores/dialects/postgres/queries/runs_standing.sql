-- Return what the end of these runs depends on.
-- Called by cancel, delete and carry_out.
SELECT
    run.job_id,
    run.cancel_at,
    EXISTS (SELECT FROM redrive_steps WHERE run_id = run.job_id AND kind = 'step' AND (outcome = 'ok' OR result IS NOT NULL)) AS has_steps,
    EXISTS (SELECT FROM redrive_steps WHERE run_id = run.job_id AND path = :mark::text) AS undoing
FROM redrive_runs AS run
WHERE run.job_id = ANY (:ids::bigint[])
