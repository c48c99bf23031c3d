-- Return the holders of these keys. A job of the same transaction may not be inserted yet.
-- Called if keys could not be taken, and by dry runs.
SELECT held.scope, held.key, held.job_id, job.task, job.state, coalesce(job.latest_at IS NOT NULL, false) AS debounced
FROM (SELECT DISTINCT scope FROM unnest(:scopes::text[]) AS scope) AS place
CROSS JOIN (SELECT DISTINCT key FROM unnest(:keys::text[]) AS key) AS wanted
CROSS JOIN LATERAL (
    SELECT scope, key, job_id FROM redrive_keys
    WHERE kind = :kind::text AND scope = place.scope AND key = wanted.key
    OFFSET 0
) AS held
LEFT JOIN LATERAL (SELECT task, state, latest_at FROM redrive_jobs WHERE id = held.job_id OFFSET 0) AS job ON true
