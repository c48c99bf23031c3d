-- Insert runs, each unless its workflow has a run with its id, and return the jobs of the new ones.
-- Called by start, before the jobs are inserted.
INSERT INTO redrive_runs (job_id, workflow, id, version, digest, parent_id, parent_path, forked_from, set_values)
SELECT * FROM unnest(
    :job_id::bigint[], :workflow::text[], :id::text[], :version::integer[], :digest::bigint[], :parent_id::bigint[],
    :parent_path::text[], :forked_from::bigint[], :set_values::bytea[]
)
ON CONFLICT (workflow, id) DO NOTHING
RETURNING job_id
