-- Return those of these instances that have waiting events.
-- Called by prune_completed.
SELECT given.key
FROM unnest(:keys::text[]) AS given (key)
WHERE EXISTS (
    SELECT FROM redrive_moves
    WHERE machine = :machine::text AND key = given.key AND status = 'queued'
    OFFSET 0
)
