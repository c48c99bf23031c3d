-- Delete the events of a topic up to an id that no cursor still needs; all of them if it is forced.
-- Called by prune, with the last id of a batch.
DELETE FROM redrive_events
WHERE topic = :topic AND id <= :last_id
    AND (:force OR id <= coalesce((SELECT min(CAST(seen AS INTEGER)) FROM redrive_shards WHERE topic = :topic), id))
RETURNING id
