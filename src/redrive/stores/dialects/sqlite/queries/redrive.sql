-- Starts dead or cancelled jobs again and answers which.
-- Called by redrive (with all failures forgiven) and retry (with the last one forgiven), for what families allows.
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'redrive',
    note = :note,
    scheduled_at = :now,
    started_at = NULL,
    finished_at = NULL,
    failures = max(0, failures - coalesce(:forgive, failures)),
    crashes = 0,
    by_rule = CASE WHEN :forgive IS NULL THEN NULL ELSE by_rule END,
    last_delay = NULL,
    redrives = redrives + 1
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state IN ('dead', 'cancelled')
    AND caught_at IS NULL
RETURNING id
