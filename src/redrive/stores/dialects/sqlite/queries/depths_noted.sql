-- Return a row if the depths of this minute are written.
-- Called by note_depths.
SELECT 1 FROM redrive_depths WHERE at = :at LIMIT 1
