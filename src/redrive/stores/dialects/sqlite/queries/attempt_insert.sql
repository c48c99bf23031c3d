-- Insert the history entries of attempts.
-- Called by settle, sweep, complete, expire_waits and cancel.
INSERT INTO redrive_attempts (
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
) VALUES (
    :job_id, :lease_id, :number, :worker_id, :started_at, :finished_at, :outcome, :reason, :stage, :error_type, :error,
    :traceback, :nominal, :delay, :rule, :verdict
)
