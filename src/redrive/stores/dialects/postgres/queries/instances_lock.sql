-- Lock instances in the order of their machines and keys, and return those that exist.
-- Called by send, settle and every action of an operator on one instance.
SELECT
    instance.machine, instance.key, instance.state, instance.to_state, instance.status, instance.job_id,
    instance.event, instance.moves, instance.created_at, instance.entered_at,
    instance.timeout_at, instance.timeout_event, instance.timeout_payload,
    instance.data, instance.error, instance.version, instance.waiting
FROM (
    SELECT machine, key FROM unnest(:machine::text[], :key::text[]) AS row (machine, key) ORDER BY machine, key
) AS given
CROSS JOIN LATERAL (
    SELECT * FROM redrive_instances WHERE machine = given.machine AND key = given.key FOR NO KEY UPDATE
) AS instance
