-- Return the crons with a last job that was created for something other than the cron.
-- Called by check; a job that was pruned cannot be checked.
SELECT job.id, 'cron ' || known.name || ' has made job ' || job.id || ', which is for ' || coalesce(job.origin, 'nothing')
    AS text, 'crons' AS rule
FROM redrive_schedules AS known
JOIN redrive_jobs AS job ON job.id = known.job_id
WHERE job.origin IS NULL OR substr(job.origin, 1, length(known.name) + 6) <> 'cron:' || known.name || '/'
LIMIT :count
