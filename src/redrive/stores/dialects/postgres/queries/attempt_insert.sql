-- Insert the history entries of attempts.
-- Called by settle, sweep, complete, expire_waits and cancel.
INSERT INTO redrive_attempts (
    job_id, lease_id, number, worker_id, started_at, finished_at, outcome, reason, stage, error_type, error, traceback,
    nominal, delay, rule, verdict
)
SELECT * FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :number::integer[], :worker_id::bigint[], :started_at::timestamptz[],
    :finished_at::timestamptz[], :outcome::text[], :reason::text[], :stage::text[], :error_type::text[], :error::text[],
    :traceback::text[], :nominal::interval[], :delay::interval[], :rule::text[], :verdict::text[]
)
