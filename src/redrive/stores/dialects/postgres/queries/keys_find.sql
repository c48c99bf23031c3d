-- Return the holders of these keys. A job of the same transaction may not be inserted yet.
-- Called if keys could not be taken, and by dry runs.
SELECT held.scope, held.key, held.job_id, job.task, job.state, coalesce(job.latest_at IS NOT NULL, false) AS debounced
FROM redrive_keys AS held
LEFT JOIN redrive_jobs AS job ON job.id = held.job_id
WHERE held.kind = :kind::text AND held.scope = ANY (:scopes::text[]) AND held.key = ANY (:keys::text[])
