-- Closes a ready job whose key another job holds.
-- Called where a job becomes ready again, and by enqueue for a debounced job whose turn is over.
UPDATE redrive_jobs SET
    state = 'cancelled',
    hold = NULL,
    reason = :reason,
    note = :note,
    finished_at = :now
WHERE id = :id AND state = 'ready'
