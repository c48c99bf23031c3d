-- Count the instances of each machine by state, up to a limit, with the failed ones and the longest there.
-- Called by by_state; it reads a bounded number of index entries of each state, and no others.
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
