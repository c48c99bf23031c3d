-- Return the runs of a workflow with these ids.
-- Called by start for the runs that existed before, and by the operations that are given the id of a run.
SELECT
-- include run_columns.sql
FROM (SELECT DISTINCT id FROM unnest(:ids::text[]) AS id) AS given
CROSS JOIN LATERAL (SELECT * FROM redrive_runs WHERE workflow = :workflow::text AND id = given.id OFFSET 0) AS run
CROSS JOIN LATERAL (SELECT hold, note, unreadable_at FROM redrive_jobs WHERE id = run.job_id OFFSET 0) AS job
