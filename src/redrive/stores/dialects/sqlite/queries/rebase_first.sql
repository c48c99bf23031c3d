-- Return the lowest id of a topic that a cursor of the old server has not seen; NULL if there is none.
-- Called by rebase.
SELECT min(id) FROM redrive_events
WHERE topic = :topic AND id > CAST(:seen AS INTEGER) AND (:until IS NULL OR id > :at_id)
