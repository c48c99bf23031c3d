-- Delete the rows of events that are done although earlier ones are not.
-- Called by move.
DELETE FROM redrive_done WHERE topic = :topic::text AND subscription = :subscription::text
