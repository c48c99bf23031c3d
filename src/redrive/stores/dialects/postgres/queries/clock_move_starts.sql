-- Moves the starts that count for rates by a span, where the database goes by the clock of a machine that was set.
-- Called by keep. A server has a clock of its own, which redrive does not keep.
SELECT NULL FROM redrive_meta WHERE :step::interval IS NULL
