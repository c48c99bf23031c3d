-- Answers the crons whose last job was made for something else.
-- Called by check; where that job was pruned nothing is known.
SELECT job.id, 'cron ' || known.name || ' has made job ' || job.id || ', which is for ' || coalesce(job.origin, 'nothing')
    AS text, 'crons' AS rule
FROM redrive_schedules AS known
JOIN redrive_jobs AS job ON job.id = known.job_id
WHERE job.origin IS NULL OR substr(job.origin, 1, length(known.name) + 6) <> 'cron:' || known.name || '/'
LIMIT :count::bigint
