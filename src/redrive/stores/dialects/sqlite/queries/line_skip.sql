-- Let the events behind dead deliveries pass, unless their subscriptions stop at a dead event.
-- Called at the end of a delivery, in the same transaction.
UPDATE redrive_jobs SET skipped_at = :now
WHERE id = :id AND state = 'dead' AND caught_at IS NULL AND skipped_at IS NULL
    AND EXISTS (
        SELECT 1 FROM redrive_subscriptions
        WHERE topic = :topic AND name = :subscription AND dead = 'continue'
    )
