-- Start dead or cancelled jobs again, each a given time after the one before, and return those that started.
-- Called by redrive, which forgives all failures, and by retry, which forgives the last one.
UPDATE redrive_jobs AS job SET
    state = 'ready',
    hold = 'redrive',
    note = :note::text,
    queue = coalesce(:queue::text, job.queue),
    scheduled_at = greatest(
        :first_at::timestamptz + :spacing::interval * (chosen.ordinal - 1), CASE WHEN :keep_due::boolean THEN job.scheduled_at END
    ),
    started_at = NULL,
    finished_at = NULL,
    skipped_at = NULL,
    expires_at = NULL,
    failures = greatest(0, job.failures - coalesce(:forgive::integer, job.failures)),
    crashes = 0,
    by_rule = CASE WHEN :forgive IS NULL THEN NULL ELSE job.by_rule END,
    last_delay = NULL,
    unreadable_at = NULL,
    redrives = job.redrives + 1
FROM unnest(:ids::bigint[]) WITH ORDINALITY AS chosen (id, ordinal)
WHERE job.id = ANY (:ids) AND job.id = chosen.id
    AND job.state IN ('dead', 'cancelled')
    AND job.caught_at IS NULL
RETURNING job.id
