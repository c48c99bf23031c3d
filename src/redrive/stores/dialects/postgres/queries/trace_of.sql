-- Return the trace of a job, or that of its parent if it has none.
-- Called by trace, before an attempt, if a tracer listens.
SELECT trace FROM redrive_traces WHERE job_id = :job_id::bigint OR job_id = :parent_id::bigint
ORDER BY job_id DESC
LIMIT 1
