-- Write the failures of error groups by hour: absolute values, so that a repeated write counts nothing twice.
-- Called by write_counters.
INSERT INTO redrive_error_hours (fingerprint, at, worker_id, failures, deaths)
SELECT * FROM unnest(
    :fingerprint::text[], :at::timestamptz[], :worker_id::bigint[], :failures::bigint[], :deaths::bigint[]
) AS given (fingerprint, at, worker_id, failures, deaths)
ON CONFLICT (fingerprint, at, worker_id) DO UPDATE SET failures = excluded.failures, deaths = excluded.deaths
WHERE redrive_error_hours.failures <> excluded.failures
