-- Delete instances.
-- Called by prune_completed.
DELETE FROM redrive_instances WHERE ctid = ANY (ARRAY(
    SELECT found.place
    FROM unnest(:keys::text[]) AS given (key)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM redrive_instances WHERE machine = :machine::text AND key = given.key OFFSET 0
    ) AS found
))
