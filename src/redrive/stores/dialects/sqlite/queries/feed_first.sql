-- Return the lowest id of the events of a window; NULL if it has none.
-- Called by turn before it walks a large window, by lag and by rebase.
SELECT min(id) FROM redrive_events
WHERE topic = :topic AND id > CAST(:seen AS INTEGER) AND id <= CAST(:until AS INTEGER)
