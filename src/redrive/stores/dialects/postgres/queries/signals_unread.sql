-- Return the first unread signals of runs, of one name if it is given; without those of the ends of child runs.
-- Called by claim and news, and by unread for one name.
-- transaction: none
SELECT sent.id, sent.run_id, sent.name, sent.key, sent.payload, sent.at, sent.path
FROM unnest(:run_id::bigint[], :name::text[], :child::text[], :count::bigint[]) AS given (run_id, name, child, count)
CROSS JOIN LATERAL (
    SELECT id, run_id, name, key, payload, at, path FROM redrive_signals
    WHERE run_id = given.run_id AND path IS NULL AND name <> given.child
        AND (given.name IS NULL OR name = given.name)
    ORDER BY id
    LIMIT given.count
) AS sent
