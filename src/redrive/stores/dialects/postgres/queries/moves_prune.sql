-- Delete the events of instances.
-- Called by prune_completed.
DELETE FROM redrive_moves WHERE id = ANY (ARRAY(
    SELECT move.id
    FROM unnest(:keys::text[]) AS given (key)
    CROSS JOIN LATERAL (SELECT id FROM redrive_moves WHERE machine = :machine::text AND key = given.key OFFSET 0) AS move
))
