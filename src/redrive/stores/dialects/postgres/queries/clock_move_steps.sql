-- Move the due times of steps by a time span.
-- Called by keep, when the time of the database follows a clock that was set. A server's clock is never moved.
SELECT NULL FROM redrive_meta WHERE :step::interval IS NULL
