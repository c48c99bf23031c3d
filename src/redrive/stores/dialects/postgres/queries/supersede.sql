-- Close ready jobs with keys that other jobs hold.
-- Called when a job becomes ready again, and by enqueue for a debounced job that has started.
UPDATE redrive_jobs AS job SET
    state = 'cancelled',
    hold = NULL,
    reason = given.reason,
    note = given.note,
    finished_at = given.now
FROM unnest(:id::bigint[], :reason::text[], :note::text[], :now::timestamptz[]) AS given (id, reason, note, now)
WHERE job.id = ANY (:id) AND job.id = given.id AND job.state = 'ready'
