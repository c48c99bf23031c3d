-- Answers what links a job to the traces of whoever watches; where it has nothing, what its parent has.
-- Called by trace, before an attempt, where somebody traces.
SELECT trace FROM redrive_traces WHERE job_id = :job_id::bigint OR job_id = :parent_id::bigint
ORDER BY job_id DESC
LIMIT 1
