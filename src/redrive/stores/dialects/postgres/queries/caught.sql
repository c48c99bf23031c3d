-- Mark dead jobs as caught.
-- Called by settle when their catch jobs have succeeded.
UPDATE redrive_jobs AS job SET caught_at = given.now
FROM unnest(:job_id::bigint[], :now::timestamptz[]) AS given (job_id, now)
-- As in settle_succeeded: the planner must not use the index of dead jobs.
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.state || '' = 'dead' AND job.caught_at IS NULL
