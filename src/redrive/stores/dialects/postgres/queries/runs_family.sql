-- Return a run, and the runs that it has called, newest first.
-- Called by timeline.
SELECT
-- include run_columns.sql
FROM redrive_runs AS run
JOIN redrive_jobs AS job ON job.id = run.job_id
WHERE run.workflow = :workflow::text AND run.id = :id::text
UNION ALL
SELECT * FROM (
    SELECT
-- include run_columns.sql
    FROM redrive_runs AS run
    JOIN redrive_jobs AS job ON job.id = run.job_id
    WHERE run.parent_id = (SELECT job_id FROM redrive_runs WHERE workflow = :workflow AND id = :id)
    ORDER BY run.job_id DESC
    LIMIT :count::bigint
) AS child
