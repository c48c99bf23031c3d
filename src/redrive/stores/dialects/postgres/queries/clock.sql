-- Return the instant of this transaction: the given one in tests, otherwise the database's.
-- Called first by every operation that writes a time or compares with one.
-- transaction: none
SELECT coalesce(:now::timestamptz, now) AS now FROM redrive_clock
