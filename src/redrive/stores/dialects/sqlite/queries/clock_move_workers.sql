-- Move the heartbeats and leases of the registered workers by a time span.
-- Called by keep, when the time of the database follows a clock that was set. A server's clock is never moved.
UPDATE redrive_workers SET
    heartbeat_at = heartbeat_at + :step,
    expires_at = expires_at + :step,
    late_at = late_at + :step,
    resumed_at = resumed_at + :step
WHERE stopped_at IS NULL
