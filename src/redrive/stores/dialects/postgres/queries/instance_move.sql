-- Write that instances have entered the states that their transitions led to.
-- Called by settle, for those without a timeout before and after it, and without other data.
UPDATE redrive_instances AS instance SET
    state = instance.to_state,
    to_state = NULL,
    status = given.status,
    job_id = NULL,
    event = NULL,
    moves = instance.moves + 1,
    entered_at = given.entered_at,
    error = NULL,
    version = given.version
FROM unnest(
    :machine::text[], :key::text[], :status::text[], :entered_at::timestamptz[], :version::text[]
) AS given (machine, key, status, entered_at, version)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_instances WHERE machine = given.machine AND key = given.key OFFSET 0
) AS found
WHERE instance.ctid = found.place
