-- Count the instances of each machine by state, up to a limit, with the failed ones and the longest there.
-- Called by by_state; it reads a bounded number of index entries of each state, and no others.
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
