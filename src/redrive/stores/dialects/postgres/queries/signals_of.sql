-- Return the first signals of a run in their order; without those of the ends of child runs.
-- Called by timeline.
-- transaction: none
SELECT id, run_id, name, key, payload, at, path FROM redrive_signals
WHERE run_id = :run_id::bigint AND name <> :child::text
ORDER BY id
LIMIT :count::bigint
