-- Write the state of instances.
-- Called by every move.
UPDATE redrive_instances AS instance SET
    state = given.state,
    to_state = given.to_state,
    status = given.status,
    job_id = given.job_id,
    event = given.event,
    moves = given.moves,
    entered_at = given.entered_at,
    timeout_at = given.timeout_at,
    timeout_event = given.timeout_event,
    timeout_payload = given.timeout_payload,
    data = given.data,
    error = given.error,
    version = given.version,
    waiting = given.waiting
FROM unnest(
    :machine::text[], :key::text[], :state::text[], :to_state::text[], :status::text[], :job_id::bigint[],
    :event::text[], :moves::integer[], :entered_at::timestamptz[], :timeout_at::timestamptz[], :timeout_event::text[],
    :timeout_payload::bytea[], :data::bytea[], :error::text[], :version::text[],
    :waiting::text[]
) AS given (
    machine, key, state, to_state, status, job_id, event, moves, entered_at, timeout_at, timeout_event, timeout_payload,
    data, error, version, waiting
)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_instances WHERE machine = given.machine AND key = given.key OFFSET 0
) AS found
WHERE instance.ctid = found.place
