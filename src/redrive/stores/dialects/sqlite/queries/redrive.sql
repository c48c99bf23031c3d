-- Start dead or cancelled jobs again, each a given time after the one before, and return those that started.
-- Called by redrive, which forgives all failures, and by retry, which forgives the last one.
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'redrive',
    note = :note,
    queue = coalesce(:queue, queue),
    scheduled_at = max(:first_at + :spacing * chosen.key, CASE WHEN :keep_due THEN scheduled_at ELSE 0 END),
    started_at = NULL,
    finished_at = NULL,
    skipped_at = NULL,
    expires_at = NULL,
    failures = max(0, failures - coalesce(:forgive, failures)),
    crashes = 0,
    by_rule = CASE WHEN :forgive IS NULL THEN NULL ELSE by_rule END,
    last_delay = NULL,
    unreadable_at = NULL,
    redrives = redrives + 1
FROM json_each(:ids) AS chosen
WHERE redrive_jobs.id = chosen.value
    AND state IN ('dead', 'cancelled')
    AND caught_at IS NULL
RETURNING redrive_jobs.id
