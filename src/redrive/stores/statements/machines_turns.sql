-- The statements of operations/machines/turns.py.

-- name: machines_look
-- Return the instant, the next timeout that the code has, and which events wait; see DueTurns.
-- Each part reads the first fitting entry of an index for each machine.
-- postgres
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (
        SELECT min(next.timeout_at)
        FROM unnest(:machines::text[]) AS given (machine)
        CROSS JOIN LATERAL (
            SELECT timeout_at FROM redrive_instances
            WHERE machine = given.machine AND timeout_at IS NOT NULL AND job_id IS NULL
                AND machine || '/' || state = ANY (:states::text[])
                AND machine || '/' || timeout_event = ANY (:events::text[])
            ORDER BY timeout_at
            LIMIT 1
        ) AS next
    ) AS timeout_at,
    EXISTS (
        SELECT 1
        FROM unnest(:machines::text[]) AS given (machine)
        CROSS JOIN LATERAL (
            SELECT 1 FROM redrive_moves AS move
            JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
            WHERE move.machine = given.machine AND move.status = 'queued' AND NOT move.noted
            LIMIT 1
        ) AS new
    ) AS new,
    EXISTS (
        SELECT 1
        FROM unnest(:machines::text[]) AS given (machine)
        CROSS JOIN LATERAL (
            SELECT 1 FROM redrive_instances AS instance
            WHERE instance.machine = given.machine AND instance.waiting IS NOT NULL
                AND (instance.job_id IS NULL OR (instance.status = 'failed' AND instance.waiting = 'failure'))
                AND (instance.state IS NULL OR instance.machine || '/' || instance.state = ANY (:states::text[]))
                AND coalesce((
                    SELECT head.machine || '/' || head.event = ANY (:events::text[]) FROM redrive_moves AS head
                    WHERE head.machine = instance.machine AND head.key = instance.key AND head.status = 'queued'
                        AND (instance.waiting = 'event' OR head.source = 'failed_to')
                    ORDER BY head.id
                    LIMIT 1
                ), true)
            ORDER BY instance.entered_at
            LIMIT 1
        ) AS free
    ) AS startable,
    EXISTS (
        SELECT 1
        FROM unnest(:machines::text[]) AS given (machine)
        CROSS JOIN LATERAL (
            SELECT 1 FROM redrive_moves WHERE status = 'queued' AND machine = given.machine LIMIT 1
        ) AS queued
    ) AS waiting
FROM redrive_clock AS clock
-- sqlite
SELECT
    coalesce(:now, clock.now) AS now,
    (
        SELECT min((
            SELECT timeout_at FROM redrive_instances
            WHERE machine = given.value AND timeout_at IS NOT NULL AND job_id IS NULL
                AND machine || '/' || state IN (SELECT value FROM json_each(:states))
                AND machine || '/' || timeout_event IN (SELECT value FROM json_each(:events))
            ORDER BY timeout_at
            LIMIT 1
        )) FROM json_each(:machines) AS given
    ) AS timeout_at,
    EXISTS (
        SELECT 1
        FROM json_each(:machines) AS given
        CROSS JOIN redrive_moves AS move ON move.machine = given.value
        CROSS JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
        WHERE move.status = 'queued' AND move.noted = 0
    ) AS new,
    EXISTS (
        SELECT 1
        FROM json_each(:machines) AS given
        CROSS JOIN redrive_instances AS instance ON instance.machine = given.value
        WHERE instance.waiting IS NOT NULL
            AND (instance.job_id IS NULL OR (instance.status = 'failed' AND instance.waiting = 'failure'))
            AND (
                instance.state IS NULL
                OR instance.machine || '/' || instance.state IN (SELECT value FROM json_each(:states))
            )
            AND coalesce((
                SELECT head.machine || '/' || head.event IN (SELECT value FROM json_each(:events))
                FROM redrive_moves AS head
                WHERE head.machine = instance.machine AND head.key = instance.key AND head.status = 'queued'
                    AND (instance.waiting = 'event' OR head.source = 'failed_to')
                ORDER BY head.id
                LIMIT 1
            ), 1)
    ) AS startable,
    EXISTS (
        SELECT 1 FROM redrive_moves WHERE status = 'queued' AND machine IN (SELECT value FROM json_each(:machines))
    ) AS waiting
FROM redrive_clock AS clock

-- name: machines_free
-- Lock instances of a machine that are free for a waiting event that the code has, or show one that waits no more.
-- postgres
SELECT
    instance.machine, instance.key, instance.state, instance.to_state, instance.status, instance.job_id,
    instance.event, instance.moves, instance.created_at, instance.entered_at,
    instance.timeout_at, instance.timeout_event, instance.timeout_payload,
    instance.data, instance.error, instance.version, instance.waiting
FROM redrive_instances AS instance
WHERE instance.machine = :machine::text AND instance.waiting IS NOT NULL
    AND (instance.job_id IS NULL OR (instance.status = 'failed' AND instance.waiting = 'failure'))
    AND (instance.state IS NULL OR instance.machine || '/' || instance.state = ANY (:states::text[]))
    AND coalesce((
        SELECT head.machine || '/' || head.event = ANY (:events::text[]) FROM redrive_moves AS head
        WHERE head.machine = instance.machine AND head.key = instance.key AND head.status = 'queued'
            AND (instance.waiting = 'event' OR head.source = 'failed_to')
        ORDER BY head.id
        LIMIT 1
    ), true)
ORDER BY instance.entered_at
LIMIT :count::bigint
FOR NO KEY UPDATE OF instance SKIP LOCKED
-- sqlite
SELECT
    instance.machine, instance.key, instance.state, instance.to_state, instance.status, instance.job_id,
    instance.event, instance.moves, instance.created_at, instance.entered_at,
    instance.timeout_at, instance.timeout_event, instance.timeout_payload,
    instance.data, instance.error, instance.version, instance.waiting
FROM redrive_instances AS instance
WHERE instance.machine = :machine AND instance.waiting IS NOT NULL
    AND (instance.job_id IS NULL OR (instance.status = 'failed' AND instance.waiting = 'failure'))
    AND (
        instance.state IS NULL
        OR instance.machine || '/' || instance.state IN (SELECT value FROM json_each(:states))
    )
    AND coalesce((
        SELECT head.machine || '/' || head.event IN (SELECT value FROM json_each(:events)) FROM redrive_moves AS head
        WHERE head.machine = instance.machine AND head.key = instance.key AND head.status = 'queued'
            AND (instance.waiting = 'event' OR head.source = 'failed_to')
        ORDER BY head.id
        LIMIT 1
    ), 1)
ORDER BY instance.entered_at
LIMIT :count

-- name: instance_free
-- Lock an instance if it is free, in a state that the code has, and no other transaction has locked it.
-- For events that queue while their instance is busy.
-- both
SELECT
-- include instance_columns
FROM redrive_instances
WHERE machine = :machine::text AND key = :key::text AND job_id IS NULL
    AND (state IS NULL OR machine || '/' || state = ANY (:states::text[]))
FOR NO KEY UPDATE SKIP LOCKED

-- name: moves_new
-- Return waiting events that their instances do not show yet, and lock these instances, without locked ones.
-- postgres
SELECT move.id, move.key, move.source
FROM redrive_moves AS move
CROSS JOIN LATERAL (
    SELECT FROM redrive_instances WHERE machine = move.machine AND key = move.key FOR NO KEY UPDATE SKIP LOCKED
) AS instance
WHERE move.status = 'queued' AND NOT move.noted AND move.machine = :machine::text
ORDER BY move.id
LIMIT :count::bigint
-- sqlite
SELECT move.id, move.key, move.source
FROM redrive_moves AS move
CROSS JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE move.status = 'queued' AND move.noted = 0 AND move.machine = :machine
ORDER BY move.id
LIMIT :count

-- name: instance_mark
-- Write that an event waits for its turn; a failure, the event of which comes first, stays written.
-- postgres
UPDATE redrive_instances AS instance SET waiting = given.waiting
FROM unnest(:machine::text[], :key::text[], :waiting::text[]) AS given (machine, key, waiting)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_instances WHERE machine = given.machine AND key = given.key OFFSET 0
) AS found
WHERE instance.ctid = found.place
    AND (instance.waiting IS NULL OR given.waiting = 'failure')
-- sqlite
UPDATE redrive_instances SET waiting = :waiting
WHERE machine = :machine AND key = :key AND (waiting IS NULL OR :waiting = 'failure')

-- name: moves_noted
-- Write that the instances of waiting events show them.
-- postgres
UPDATE redrive_moves SET noted = true WHERE id = ANY (:ids::bigint[])
-- sqlite
UPDATE redrive_moves SET noted = 1 WHERE id IN (SELECT value FROM json_each(:ids))

-- name: machines_overdue
-- Lock idle instances of a machine with due timeouts that the code has, the earliest first, without locked ones.
-- both
SELECT
-- include instance_columns
FROM redrive_instances
WHERE machine = :machine::text AND timeout_at IS NOT NULL AND timeout_at <= :now::timestamptz AND job_id IS NULL
    AND machine || '/' || state = ANY (:states::text[])
    AND machine || '/' || timeout_event = ANY (:events::text[])
ORDER BY timeout_at
LIMIT :count::bigint
FOR NO KEY UPDATE SKIP LOCKED
