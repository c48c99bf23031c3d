-- Delete the history of all crons.
-- Called by empty.
DELETE FROM redrive_occurrences
