-- Close ready jobs with keys that other jobs hold.
-- Called when a job becomes ready again, and by enqueue for a debounced job that has started.
UPDATE redrive_jobs SET
    state = 'cancelled',
    hold = NULL,
    reason = :reason,
    note = :note,
    finished_at = :now
WHERE id = :id AND state = 'ready'
