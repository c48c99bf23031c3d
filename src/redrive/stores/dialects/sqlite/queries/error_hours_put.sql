-- Write the failures of error groups by hour: absolute values, so that a repeated write counts nothing twice.
-- Called by write_counters.
INSERT INTO redrive_error_hours (fingerprint, at, worker_id, failures, deaths)
VALUES (:fingerprint, :at, :worker_id, :failures, :deaths)
ON CONFLICT (fingerprint, at, worker_id) DO UPDATE SET failures = excluded.failures, deaths = excluded.deaths
WHERE redrive_error_hours.failures <> excluded.failures
