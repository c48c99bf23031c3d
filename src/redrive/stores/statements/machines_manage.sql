-- The statements of operations/machines/manage.py.

-- name: instances_select
-- Return instances by machine and key, with the filters that are not NULL.
-- both
SELECT
-- include instance_columns
FROM redrive_instances
WHERE machine = :machine::text
    AND key > :after::text
    AND (:key::text IS NULL OR key = :key::text)
    AND (:state::text IS NULL OR state = :state::text)
    AND (:status::text IS NULL OR status = :status::text)
ORDER BY key
LIMIT :count::bigint

-- name: instances_since
-- Return instances that have been in a state since an instant, the longest there first.
-- both
SELECT
-- include instance_columns
FROM redrive_instances
WHERE machine = :machine::text AND state = :state::text AND entered_at <= :until::timestamptz AND status <> 'completed'
ORDER BY entered_at
LIMIT :count::bigint

-- name: instances_counts
-- Count the instances of each machine by state and status.
-- both
SELECT
    machine, state, status, count(*) AS number, count(job_id) AS busy,
    min(entered_at) AS since
FROM redrive_instances
WHERE :machine::text IS NULL OR machine = :machine::text
GROUP BY machine, state, status
ORDER BY machine, state, status

-- name: instances_states
-- Count the instances of each machine by state, up to a limit, with the failed ones and the longest there.
-- It reads a bounded number of index entries of each state, and no others.
-- postgres
WITH RECURSIVE names (machine, number) AS (
    SELECT (SELECT min(machine) FROM redrive_instances), 1
    UNION ALL
    SELECT (SELECT min(machine) FROM redrive_instances WHERE machine > names.machine), names.number + 1
    FROM names
    WHERE names.machine IS NOT NULL AND names.number < :widest::bigint
),
states (machine, state, number) AS (
    SELECT names.machine,
        (SELECT min(state) FROM redrive_instances WHERE machine = names.machine AND state > ''), 1
    FROM names
    WHERE names.machine IS NOT NULL AND names.machine = coalesce(:machine::text, names.machine)
    UNION ALL
    SELECT states.machine,
        (SELECT min(state) FROM redrive_instances WHERE machine = states.machine AND state > states.state),
        states.number + 1
    FROM states
    WHERE states.state IS NOT NULL AND states.number < :widest
),
counted AS (
    SELECT states.machine, states.state, head.number, head.since
    FROM states
    CROSS JOIN LATERAL (
        SELECT count(*) AS number, min(entered_at) AS since FROM (
            SELECT entered_at FROM redrive_instances
            WHERE machine = states.machine AND state = states.state
            ORDER BY entered_at
            LIMIT :most::bigint
        ) AS first
    ) AS head
    WHERE states.state IS NOT NULL
    UNION ALL
    SELECT names.machine, NULL::text AS state, head.number, head.since
    FROM names
    CROSS JOIN LATERAL (
        SELECT count(*) AS number, min(entered_at) AS since FROM (
            SELECT entered_at FROM redrive_instances
            WHERE machine = names.machine AND state IS NULL
            ORDER BY entered_at
            LIMIT :most
        ) AS first
    ) AS head
    WHERE names.machine IS NOT NULL AND names.machine = coalesce(:machine, names.machine)
)
SELECT counted.machine, counted.state, counted.number, failed.number AS failed, failed.in_all AS failed_in_all,
    counted.since
FROM counted
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE head.state IS NOT DISTINCT FROM counted.state) AS number, count(*) AS in_all
    FROM (
        SELECT state FROM redrive_instances
        WHERE machine = counted.machine AND status = 'failed'
        LIMIT :most
    ) AS head
) AS failed
ORDER BY counted.machine, counted.state NULLS FIRST
-- sqlite
WITH RECURSIVE names (machine, number) AS (
    SELECT (SELECT min(machine) FROM redrive_instances), 1
    UNION ALL
    SELECT (SELECT min(machine) FROM redrive_instances WHERE machine > names.machine), names.number + 1
    FROM names
    WHERE names.machine IS NOT NULL AND names.number < :widest
),
states (machine, state, number) AS (
    SELECT names.machine,
        (SELECT min(state) FROM redrive_instances WHERE machine = names.machine AND state > ''), 1
    FROM names
    WHERE names.machine IS NOT NULL AND names.machine = coalesce(:machine, names.machine)
    UNION ALL
    SELECT states.machine,
        (SELECT min(state) FROM redrive_instances WHERE machine = states.machine AND state > states.state),
        states.number + 1
    FROM states
    WHERE states.state IS NOT NULL AND states.number < :widest
),
places AS (
    SELECT machine, state FROM states WHERE state IS NOT NULL
    UNION ALL
    SELECT machine, NULL AS state FROM names
    WHERE machine IS NOT NULL AND machine = coalesce(:machine, machine)
)
SELECT places.machine, places.state,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_instances
            WHERE machine = places.machine AND state IS places.state
            LIMIT :most
        ) AS head
    ) AS number,
    (
        SELECT count(*) FROM (
            SELECT state FROM redrive_instances
            WHERE machine = places.machine AND status = 'failed'
            LIMIT :most
        ) AS head
        WHERE head.state IS places.state
    ) AS failed,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_instances WHERE machine = places.machine AND status = 'failed' LIMIT :most
        ) AS head
    ) AS failed_in_all,
    (
        SELECT entered_at FROM redrive_instances
        WHERE machine = places.machine AND state IS places.state
        ORDER BY entered_at
        LIMIT 1
    ) AS since
FROM places
ORDER BY places.machine, places.state

-- name: instances_failed
-- Return failed instances by machine and key, in one state or in all.
-- Their index has no others.
-- both
SELECT
-- include instance_columns
FROM redrive_instances
WHERE machine = :machine::text
    AND status = 'failed'
    AND key > :after::text
    AND (:state::text IS NULL OR state = :state::text)
ORDER BY key
LIMIT :count::bigint

-- name: instances_floor
-- Return the key behind which a search with a budget goes on; nothing if it reads all.
-- both
SELECT key FROM redrive_instances
WHERE machine = :machine::text AND key > :after::text
ORDER BY key
LIMIT 1 OFFSET :budget::bigint

-- name: instances_search
-- Return instances by key, with the filters that are not NULL, among a limited number of them.
-- both
SELECT
-- include instance_columns
FROM (
    SELECT
-- include instance_columns
    FROM redrive_instances
    WHERE machine = :machine::text AND key > :after::text
    ORDER BY key
    LIMIT :budget::bigint
) AS near
WHERE (:state::text IS NULL OR state = :state::text)
    AND (:status::text IS NULL OR status = :status::text)
ORDER BY key
LIMIT :count::bigint

-- name: machines_stranded
-- Count what waits for a state or a class of events that the code does not have: instances, timeouts, waiting
-- events.
-- It reads every instance of the machines in an index.
-- postgres
SELECT machine, 'state' AS what, state, NULL AS event, count(*) AS number FROM redrive_instances
WHERE machine = ANY (:machines::text[]) AND NOT machine || '/' || state = ANY (:states::text[])
GROUP BY machine, state
UNION ALL
SELECT machine, 'timeout' AS what, state, timeout_event AS event, count(*) AS number FROM redrive_instances
WHERE machine = ANY (:machines::text[]) AND machine || '/' || state = ANY (:states::text[])
    AND NOT machine || '/' || timeout_event = ANY (:events::text[])
GROUP BY machine, state, timeout_event
UNION ALL
SELECT machine, 'event' AS what, NULL AS state, event, count(*) AS number FROM redrive_moves
WHERE machine = ANY (:machines::text[]) AND status = 'queued' AND NOT machine || '/' || event = ANY (:events::text[])
GROUP BY machine, event
ORDER BY machine, what, state, event
-- sqlite
SELECT machine, 'state' AS what, state, NULL AS event, count(*) AS number FROM redrive_instances
WHERE machine IN (SELECT value FROM json_each(:machines))
    AND machine || '/' || state NOT IN (SELECT value FROM json_each(:states))
GROUP BY machine, state
UNION ALL
SELECT machine, 'timeout' AS what, state, timeout_event AS event, count(*) AS number FROM redrive_instances
WHERE machine IN (SELECT value FROM json_each(:machines))
    AND machine || '/' || state IN (SELECT value FROM json_each(:states))
    AND machine || '/' || timeout_event NOT IN (SELECT value FROM json_each(:events))
GROUP BY machine, state, timeout_event
UNION ALL
SELECT machine, 'event' AS what, NULL AS state, event, count(*) AS number FROM redrive_moves
WHERE machine IN (SELECT value FROM json_each(:machines)) AND status = 'queued'
    AND machine || '/' || event NOT IN (SELECT value FROM json_each(:events))
GROUP BY machine, event
ORDER BY machine, what, state, event

-- name: moves_of
-- Return the events of an instance, the latest first.
-- both
SELECT
-- include move_columns
FROM redrive_moves
WHERE machine = :machine::text AND key = :key::text AND id < :before::bigint
ORDER BY id DESC
LIMIT :count::bigint

-- name: instance_delete
-- Delete an instance.
-- both
DELETE FROM redrive_instances WHERE machine = :machine::text AND key = :key::text

-- name: moves_delete
-- Delete the events of an instance.
-- both
DELETE FROM redrive_moves WHERE machine = :machine::text AND key = :key::text

-- name: instances_completed
-- Lock completed instances that entered their state long enough ago, without locked ones, and return their keys.
-- both
SELECT key FROM redrive_instances
WHERE machine = :machine::text AND status = 'completed' AND entered_at <= :before::timestamptz AND job_id IS NULL
ORDER BY entered_at
LIMIT :count::bigint
FOR UPDATE SKIP LOCKED

-- name: instances_queued
-- Return those of these instances that have waiting events.
-- postgres
SELECT given.key
FROM unnest(:keys::text[]) AS given (key)
WHERE EXISTS (
    SELECT FROM redrive_moves
    WHERE machine = :machine::text AND key = given.key AND status = 'queued'
    OFFSET 0
)
-- sqlite
SELECT DISTINCT key FROM redrive_moves
WHERE machine = :machine AND key IN (SELECT value FROM json_each(:keys)) AND status = 'queued'

-- name: instances_prune
-- Delete instances.
-- postgres
DELETE FROM redrive_instances WHERE ctid = ANY (ARRAY(
    SELECT found.place
    FROM unnest(:keys::text[]) AS given (key)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM redrive_instances WHERE machine = :machine::text AND key = given.key OFFSET 0
    ) AS found
))
-- sqlite
DELETE FROM redrive_instances WHERE machine = :machine AND key IN (SELECT value FROM json_each(:keys))

-- name: moves_prune
-- Delete the events of instances.
-- postgres
DELETE FROM redrive_moves WHERE id = ANY (ARRAY(
    SELECT move.id
    FROM unnest(:keys::text[]) AS given (key)
    CROSS JOIN LATERAL (SELECT id FROM redrive_moves WHERE machine = :machine::text AND key = given.key OFFSET 0) AS move
))
-- sqlite
DELETE FROM redrive_moves WHERE machine = :machine AND key IN (SELECT value FROM json_each(:keys))

-- name: instances_in
-- Lock free instances in a state, without those that others have locked.
-- both
SELECT
-- include instance_columns
FROM redrive_instances
WHERE machine = :machine::text AND state = :state::text AND job_id IS NULL AND key > :after::text
ORDER BY key
LIMIT :count::bigint
FOR NO KEY UPDATE SKIP LOCKED
