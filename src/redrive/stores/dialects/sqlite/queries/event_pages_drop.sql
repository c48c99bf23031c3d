-- Delete the sizes of the pages of a topic with events that are deleted, up to an id.
-- Called by prune.
DELETE FROM redrive_event_pages WHERE topic = :topic AND last_id <= :last_id
