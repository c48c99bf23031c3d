-- Moves the starts that count for rates by a span.
-- Called by keep, when the time of the database follows a clock that was set.
UPDATE redrive_starts SET started_at = started_at + :step
