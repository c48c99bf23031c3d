-- Return the trace of a job, or that of its parent if it has none.
-- Called by trace, before an attempt, if a tracer listens.
SELECT trace FROM redrive_traces WHERE job_id = :job_id OR job_id = :parent_id
ORDER BY job_id DESC
LIMIT 1
