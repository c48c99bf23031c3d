-- Move the start and the end of the waits of unfinished jobs by a time span. Jobs that were due stay due.
-- Called by keep, when the time of the database follows a clock that was set. A server's clock is never moved.
SELECT NULL FROM redrive_meta WHERE :step::interval IS NULL AND :now::timestamptz IS NULL
