-- Insert runs, each unless its workflow has a run with its id, and return the jobs of the new ones.
-- Called by start, before the jobs are inserted.
-- many: rows
INSERT INTO redrive_runs (job_id, workflow, id, version, digest, parent_id, parent_path, forked_from, set_values)
VALUES (:job_id, :workflow, :id, :version, :digest, :parent_id, :parent_path, :forked_from, :set_values)
ON CONFLICT (workflow, id) DO NOTHING
RETURNING job_id
