-- The statements of operations/admin.py.

-- fragment: job_filter
-- The conditions of a filter, of redrive_jobs, on PostgreSQL AS job.
-- postgres
    (:state::text IS NULL OR state = :state)
    AND (:hold::text IS NULL OR hold = :hold)
    AND (:task::text IS NULL OR task = :task)
    AND (:queue::text IS NULL OR queue = :queue)
    AND (:reason::text IS NULL OR reason = :reason)
    AND (:error::text IS NULL OR strpos(error, :error) > 0)
    AND (:group::text IS NULL OR fingerprint = :group)
    AND (:caught::boolean IS NULL OR (caught_at IS NOT NULL) = :caught)
    AND (:skipped::boolean IS NULL OR ((skipped_at > finished_at) IS TRUE) = :skipped)
    AND (:tag::text IS NULL OR EXISTS (SELECT FROM redrive_tags AS mark WHERE mark.tag = :tag AND mark.job_id = job.id))
    AND (:refreshes::boolean OR state <> 'dead' OR origin IS NULL OR origin NOT LIKE 'refresh:%')
    AND (:finished_before::timestamptz IS NULL OR finished_at < :finished_before)
    AND (NOT :narrow::boolean OR (
        (:partition::text IS NULL OR partition = :partition)
        -- The name of a schedule has no slash.
        AND (:schedule::text IS NULL OR :schedule = CASE WHEN origin LIKE 'cron:%' OR origin LIKE 'refresh:%'
            THEN substr(origin, strpos(origin, ':') + 1, strpos(origin, '/') - strpos(origin, ':') - 1) END)
        -- OFFSET: no plan reads all keys or attempts for that.
        AND (:key::text IS NULL OR key = :key OR EXISTS (
            SELECT FROM redrive_keys AS held
            WHERE held.kind = 'idempotency' AND held.scope = '' AND held.key = :key AND held.job_id = job.id OFFSET 0
        ))
        AND (
            :workers::bigint[] IS NULL OR worker_id = ANY (:workers) OR success_worker_id = ANY (:workers) OR EXISTS (
                SELECT FROM redrive_attempts AS closed
                WHERE closed.job_id = job.id AND closed.worker_id = ANY (:workers) OFFSET 0
            )
        )
        AND (:since::timestamptz IS NULL OR coalesce(finished_at, enqueued_at) >= :since)
        AND (:until::timestamptz IS NULL OR coalesce(finished_at, enqueued_at) < :until)
        AND (:attempts_least::bigint IS NULL OR attempt >= :attempts_least)
        AND (:attempts_most::bigint IS NULL OR attempt <= :attempts_most)
        AND ((:took_least::interval IS NULL AND :took_most::interval IS NULL) OR (
            CASE
                WHEN state IN ('running', 'waiting')
                THEN coalesce(:now::timestamptz, (SELECT clock.now FROM redrive_clock AS clock)) - claimed_at
                ELSE finished_at - claimed_at
            END BETWEEN coalesce(:took_least, interval '-1000 years') AND coalesce(:took_most, interval '1000 years')
        ))
        AND (state = ANY (:not_state::text[])) IS NOT TRUE
        AND (task = ANY (:not_task::text[])) IS NOT TRUE
        AND (queue = ANY (:not_queue::text[])) IS NOT TRUE
        AND (hold = ANY (:not_hold::text[])) IS NOT TRUE
        AND (reason = ANY (:not_reason::text[])) IS NOT TRUE
        AND (fingerprint = ANY (:not_group::text[])) IS NOT TRUE
        AND (partition = ANY (:not_partition::text[])) IS NOT TRUE
        AND (CASE WHEN origin LIKE 'cron:%' OR origin LIKE 'refresh:%'
            THEN substr(origin, strpos(origin, ':') + 1, strpos(origin, '/') - strpos(origin, ':') - 1)
            END = ANY (:not_schedule::text[])) IS NOT TRUE
        AND (key = ANY (:not_key::text[])) IS NOT TRUE
        AND (id = ANY (:not_ids::bigint[])) IS NOT TRUE
        AND (worker_id = ANY (:not_workers::bigint[])) IS NOT TRUE
        AND (success_worker_id = ANY (:not_workers)) IS NOT TRUE
        AND NOT EXISTS (
            SELECT FROM redrive_tags AS mark WHERE mark.tag = ANY (:not_tag::text[]) AND mark.job_id = job.id OFFSET 0
        )
        AND NOT EXISTS (
            SELECT FROM redrive_keys AS held
            WHERE held.kind = 'idempotency' AND held.scope = '' AND held.key = ANY (:not_key) AND held.job_id = job.id
            OFFSET 0
        )
        AND NOT EXISTS (
            SELECT FROM redrive_attempts AS closed
            WHERE closed.job_id = job.id AND closed.worker_id = ANY (:not_workers) OFFSET 0
        )
    ))
    AND id > :after_id::bigint
    AND id < :before_id::bigint
-- sqlite
    (:state IS NULL OR state = :state)
    AND (:hold IS NULL OR hold = :hold)
    AND (:task IS NULL OR task = :task)
    AND (:queue IS NULL OR queue = :queue)
    AND (:reason IS NULL OR reason = :reason)
    AND (:error IS NULL OR instr(error, :error) > 0)
    AND (:group IS NULL OR fingerprint = :group)
    AND (:caught IS NULL OR (caught_at IS NOT NULL) = :caught)
    AND (:skipped IS NULL OR ((skipped_at > finished_at) IS TRUE) = :skipped)
    AND (
        :tag IS NULL
        OR EXISTS (SELECT 1 FROM redrive_tags AS mark WHERE mark.tag = :tag AND mark.job_id = redrive_jobs.id)
    )
    AND (:refreshes OR state <> 'dead' OR origin IS NULL OR origin NOT LIKE 'refresh:%')
    AND (:finished_before IS NULL OR finished_at < :finished_before)
    AND (NOT :narrow OR (
        (:partition IS NULL OR partition = :partition)
        AND (:schedule IS NULL OR :schedule = CASE WHEN origin LIKE 'cron:%' OR origin LIKE 'refresh:%'
            THEN substr(origin, instr(origin, ':') + 1, instr(origin, '/') - instr(origin, ':') - 1) END)
        AND (:key IS NULL OR key = :key OR EXISTS (
            SELECT 1 FROM redrive_keys AS held
            WHERE held.kind = 'idempotency' AND held.scope = '' AND held.key = :key AND held.job_id = redrive_jobs.id
        ))
        AND (
            :workers IS NULL
            OR worker_id IN (SELECT value FROM json_each(:workers))
            OR success_worker_id IN (SELECT value FROM json_each(:workers))
            OR EXISTS (
                SELECT 1 FROM redrive_attempts AS closed
                WHERE closed.job_id = redrive_jobs.id AND closed.worker_id IN (SELECT value FROM json_each(:workers))
            )
        )
        AND (:since IS NULL OR coalesce(finished_at, enqueued_at) >= :since)
        AND (:until IS NULL OR coalesce(finished_at, enqueued_at) < :until)
        AND (:attempts_least IS NULL OR attempt >= :attempts_least)
        AND (:attempts_most IS NULL OR attempt <= :attempts_most)
        AND ((:took_least IS NULL AND :took_most IS NULL) OR (
            CASE
                WHEN state IN ('running', 'waiting')
                THEN coalesce(:now, (SELECT clock.now FROM redrive_clock AS clock)) - claimed_at
                ELSE finished_at - claimed_at
            END BETWEEN coalesce(:took_least, -9223372036854775807) AND coalesce(:took_most, 9223372036854775807)
        ))
        AND (state IN (SELECT value FROM json_each(:not_state))) IS NOT TRUE
        AND (task IN (SELECT value FROM json_each(:not_task))) IS NOT TRUE
        AND (queue IN (SELECT value FROM json_each(:not_queue))) IS NOT TRUE
        AND (hold IN (SELECT value FROM json_each(:not_hold))) IS NOT TRUE
        AND (reason IN (SELECT value FROM json_each(:not_reason))) IS NOT TRUE
        AND (fingerprint IN (SELECT value FROM json_each(:not_group))) IS NOT TRUE
        AND (partition IN (SELECT value FROM json_each(:not_partition))) IS NOT TRUE
        AND (CASE WHEN origin LIKE 'cron:%' OR origin LIKE 'refresh:%'
            THEN substr(origin, instr(origin, ':') + 1, instr(origin, '/') - instr(origin, ':') - 1)
            END IN (SELECT value FROM json_each(:not_schedule))) IS NOT TRUE
        AND (key IN (SELECT value FROM json_each(:not_key))) IS NOT TRUE
        AND (id IN (SELECT value FROM json_each(:not_ids))) IS NOT TRUE
        AND (worker_id IN (SELECT value FROM json_each(:not_workers))) IS NOT TRUE
        AND (success_worker_id IN (SELECT value FROM json_each(:not_workers))) IS NOT TRUE
        AND NOT EXISTS (
            SELECT 1 FROM redrive_tags AS mark
            WHERE mark.tag IN (SELECT value FROM json_each(:not_tag)) AND mark.job_id = redrive_jobs.id
        )
        AND NOT EXISTS (
            SELECT 1 FROM redrive_keys AS held
            WHERE held.kind = 'idempotency' AND held.scope = '' AND held.job_id = redrive_jobs.id
                AND held.key IN (SELECT value FROM json_each(:not_key))
        )
        AND NOT EXISTS (
            SELECT 1 FROM redrive_attempts AS closed
            WHERE closed.job_id = redrive_jobs.id AND closed.worker_id IN (SELECT value FROM json_each(:not_workers))
        )
    ))
    AND id > :after_id
    AND id < :before_id

-- name: jobs_held
-- Return the jobs that match and wait for one reason, by due time, without sorting.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE
-- include job_filter
    AND hold = :hold::text
ORDER BY scheduled_at, id
LIMIT :count::bigint
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE
-- include job_filter
    AND hold = :hold
ORDER BY scheduled_at, id
LIMIT :count

-- name: jobs_these
-- Return those of these jobs that match, by id, ascending or descending.
-- If the jobs are few.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE
-- include job_filter
    AND id = ANY (:ids::bigint[])
ORDER BY CASE WHEN :oldest_first::boolean THEN id ELSE -id END
LIMIT :count::bigint
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE
-- include job_filter
    AND id IN (SELECT value FROM json_each(:ids))
ORDER BY CASE WHEN :oldest_first THEN id ELSE -id END
LIMIT :count

-- name: jobs_dead
-- Return the jobs that match, are dead and were not caught, oldest first, independent of the size of the table.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE
-- include job_filter
    AND state = 'dead'
    AND caught_at IS NULL
ORDER BY id
LIMIT :count::bigint
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE
-- include job_filter
    AND state = 'dead'
    AND caught_at IS NULL
ORDER BY id
LIMIT :count

-- name: jobs_oldest
-- Return the jobs that match, oldest first, in the order of the table, without sorting.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE
-- include job_filter
ORDER BY id
LIMIT :count::bigint
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE
-- include job_filter
ORDER BY id
LIMIT :count

-- name: jobs_select
-- Return the jobs that match, newest first, in the order of the table, without sorting.
-- postgres
SELECT
-- include job_columns
FROM redrive_jobs AS job
WHERE
-- include job_filter
ORDER BY id DESC
LIMIT :count::bigint
-- sqlite
SELECT
-- include job_columns
FROM redrive_jobs
WHERE
-- include job_filter
ORDER BY id DESC
LIMIT :count

-- name: jobs_tagged
-- Return ids of jobs with a tag, oldest first, up to a limit.
-- It shows whether they are few.
-- both
SELECT job_id FROM redrive_tags
WHERE tag = :tag::text AND job_id > :after_id::bigint AND job_id < :before_id::bigint
ORDER BY job_id
LIMIT :most::bigint

-- name: jobs_known
-- Return ids of jobs that an index finds by a tag, a key, a worker that runs them, or the id of a run, newest first.
-- The tasks of unique keys and the workflows are found by a loose scan.
-- both
WITH RECURSIVE scopes (name) AS (
    SELECT min(scope) FROM redrive_keys WHERE kind = 'unique' AND :key::text IS NOT NULL
    UNION ALL
    SELECT (SELECT min(scope) FROM redrive_keys WHERE kind = 'unique' AND scope > scopes.name)
    FROM scopes
    WHERE scopes.name IS NOT NULL
),
workflows (name) AS (
    SELECT min(workflow) FROM redrive_runs WHERE :run::text IS NOT NULL
    UNION ALL
    SELECT (SELECT min(workflow) FROM redrive_runs WHERE workflow > workflows.name)
    FROM workflows
    WHERE workflows.name IS NOT NULL
)
SELECT id FROM (
    SELECT id FROM (
        SELECT job_id AS id FROM redrive_tags
        WHERE tag = :tag::text AND job_id > :after_id::bigint AND job_id < :before_id::bigint
        ORDER BY job_id DESC
        LIMIT :most::bigint
    ) AS tagged
    UNION
    SELECT job_id FROM redrive_keys WHERE kind = 'idempotency' AND scope = '' AND key = :key
    UNION
    SELECT (SELECT job_id FROM redrive_keys WHERE kind = 'unique' AND scope = scopes.name AND key = :key) FROM scopes
    UNION
    SELECT (SELECT job_id FROM redrive_runs WHERE workflow = workflows.name AND id = :run) FROM workflows
    UNION
    SELECT id FROM redrive_jobs WHERE state = 'running' AND worker_id = ANY (:workers::bigint[])
) AS found
WHERE id > :after_id AND id < :before_id
ORDER BY id DESC
LIMIT :most

-- name: runs_called
-- Return the jobs of the runs with these ids, and of the runs that these have called, directly or not.
-- both
WITH RECURSIVE workflows (name) AS (
    SELECT min(workflow) FROM redrive_runs
    UNION ALL
    SELECT (SELECT min(workflow) FROM redrive_runs WHERE workflow > workflows.name)
    FROM workflows
    WHERE workflows.name IS NOT NULL
),
family (job_id) AS (
    SELECT run.job_id
    FROM workflows
    CROSS JOIN redrive_runs AS run
    WHERE run.workflow = workflows.name AND run.id = ANY (:names::text[])
    UNION
    SELECT child.job_id FROM family CROSS JOIN redrive_runs AS child WHERE child.parent_id = family.job_id
)
SELECT job_id FROM family

-- name: workers_named
-- Return the ids of workers with these names.
-- both
SELECT id FROM redrive_workers WHERE name = ANY (:names::text[])

-- name: jobs_few
-- Return ids of jobs in one state, or that wait for one reason, from the partial index of each, up to a limit.
-- It shows whether they are few. Succeeded and cancelled jobs have no such index.
-- both
SELECT id FROM (
    SELECT id FROM redrive_jobs WHERE hold = :hold::text
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'ready' AND partition IS NULL AND :state::text = 'ready' AND :hold::text IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'ready' AND partition IS NOT NULL AND :state::text = 'ready' AND :hold::text IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'running' AND :state::text = 'running' AND :hold::text IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'waiting' AND :state::text = 'waiting' AND :hold::text IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'dead' AND caught_at IS NULL AND :state::text = 'dead' AND :hold::text IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE caught_at IS NOT NULL AND :state::text = 'dead' AND :hold::text IS NULL
) AS found
LIMIT :most::bigint

-- name: jobs_grouped
-- Return ids of dead jobs of an error group, newest first, up to a limit.
-- It shows whether they are few.
-- both
SELECT id FROM redrive_jobs
WHERE fingerprint = :group::text AND state = 'dead' AND caught_at IS NULL
    AND id > :after_id::bigint AND id < :before_id::bigint
ORDER BY id DESC
LIMIT :most::bigint

-- name: dead_ids
-- Return ids of dead jobs, caught or not or both, newest first, up to a limit.
-- postgres
SELECT id FROM (
    (
        SELECT id FROM redrive_jobs
        WHERE state = 'dead' AND caught_at IS NULL AND :caught::boolean IS NOT TRUE
            AND id > :after_id::bigint AND id < :before_id::bigint
        ORDER BY id DESC
        LIMIT :most::bigint
    )
    UNION ALL
    (
        SELECT id FROM redrive_jobs
        WHERE caught_at IS NOT NULL AND :caught::boolean IS NOT FALSE
            AND id > :after_id::bigint AND id < :before_id::bigint
        ORDER BY id DESC
        LIMIT :most::bigint
    )
) AS found
ORDER BY id DESC
LIMIT :most::bigint
-- sqlite
SELECT id FROM (
    SELECT id FROM (
        SELECT id FROM redrive_jobs
        WHERE state = 'dead' AND caught_at IS NULL AND :caught IS NOT 1 AND id > :after_id AND id < :before_id
        ORDER BY id DESC
        LIMIT :most
    )
    UNION ALL
    SELECT id FROM (
        SELECT id FROM redrive_jobs
        WHERE caught_at IS NOT NULL AND :caught IS NOT 0 AND id > :after_id AND id < :before_id
        ORDER BY id DESC
        LIMIT :most
    )
)
ORDER BY id DESC
LIMIT :most

-- name: jobs_window
-- Return the number of the newest jobs in a range of ids, up to a limit, and the smallest of their ids.
-- A page reads no further.
-- both
SELECT count(*), coalesce(min(id), 0) FROM (
    SELECT id FROM redrive_jobs
    WHERE id > :after_id::bigint AND id < :before_id::bigint
    ORDER BY id DESC
    LIMIT :most::bigint
) AS newest

-- name: stats
-- Count jobs by state, each up to a limit; of the ended ones only those among the newest jobs, except dead ones.
-- It reads partial indexes and the end of the table. The due jobs of a lane come first in the index.
-- postgres
SELECT
    -- Retries may fill the limit of all later jobs; then those that are held for another reason are counted, too.
    due, greatest(later - retrying, CASE WHEN later < :most::bigint THEN 0 ELSE held END) AS scheduled, retrying, running, waiting,
    succeeded, dead, caught, cancelled
FROM (
    SELECT
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN LATERAL (
            (
                SELECT id FROM redrive_jobs
                WHERE NOT lane.is_parted AND state = 'ready' AND partition IS NULL
                    AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                    AND scheduled_at <= :now::timestamptz AND id > :after_id::bigint
                ORDER BY scheduled_at, id
                LIMIT :most::bigint
            )
            UNION ALL
            (
                SELECT id FROM redrive_jobs
                WHERE lane.is_parted AND state = 'ready' AND partition IS NOT NULL
                    AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                    AND scheduled_at <= :now::timestamptz AND id > :after_id::bigint
                ORDER BY scheduled_at, id
                LIMIT :most::bigint
            )
            ) AS job
            WHERE (:task::text IS NULL OR lane.task = :task)
            LIMIT :most
        ) AS found
    ) AS due,
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN LATERAL (
            (
                SELECT id FROM redrive_jobs
                WHERE NOT lane.is_parted AND state = 'ready' AND partition IS NULL
                    AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                    AND scheduled_at > :now::timestamptz AND id > :after_id::bigint
                ORDER BY scheduled_at, id
                LIMIT :most::bigint
            )
            UNION ALL
            (
                SELECT id FROM redrive_jobs
                WHERE lane.is_parted AND state = 'ready' AND partition IS NOT NULL
                    AND queue = lane.queue AND priority = lane.priority AND task = lane.task
                    AND scheduled_at > :now::timestamptz AND id > :after_id::bigint
                ORDER BY scheduled_at, id
                LIMIT :most::bigint
            )
            ) AS job
            WHERE (:task::text IS NULL OR lane.task = :task)
            LIMIT :most
        ) AS found
    ) AS later,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE hold = 'retry' AND scheduled_at > :now AND id > :after_id AND (:task::text IS NULL OR task = :task)
            ORDER BY scheduled_at
            LIMIT :most
        ) AS found
    ) AS retrying,
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM unnest(:holds::text[]) AS given (hold)
            CROSS JOIN LATERAL (
                SELECT id FROM redrive_jobs
                WHERE hold = given.hold AND scheduled_at > :now AND id > :after_id
                    AND (:task::text IS NULL OR task = :task)
                ORDER BY scheduled_at
                LIMIT :most
            ) AS job
            LIMIT :most
        ) AS found
    ) AS held,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'running' AND id > :after_id AND (:task::text IS NULL OR task = :task)
            ORDER BY worker_id
            LIMIT :most
        ) AS found
    ) AS running,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'waiting' AND id > :after_id AND (:task::text IS NULL OR task = :task)
            ORDER BY scheduled_at
            LIMIT :most
        ) AS found
    ) AS waiting,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'dead' AND caught_at IS NULL AND (skipped_at > finished_at) IS NOT TRUE
                AND (origin IS NULL OR origin NOT LIKE 'refresh:%') AND id > :after_id AND (:task::text IS NULL OR task = :task)
            ORDER BY id DESC
            LIMIT :most
        ) AS found
    ) AS dead,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE caught_at IS NOT NULL AND (origin IS NULL OR origin NOT LIKE 'refresh:%') AND id > :after_id AND (:task::text IS NULL OR task = :task)
            ORDER BY id DESC
            LIMIT :most
        ) AS found
    ) AS caught
) AS counted
CROSS JOIN (
    SELECT
        count(*) FILTER (WHERE state = 'succeeded' AND (:task::text IS NULL OR task = :task)) AS succeeded,
        count(*) FILTER (WHERE state = 'cancelled' AND (:task::text IS NULL OR task = :task)) AS cancelled
    FROM (SELECT state, task FROM redrive_jobs WHERE id > :after_id ORDER BY id DESC LIMIT :most) AS newest
) AS ended
-- sqlite
SELECT
    -- Retries may fill the limit of all later jobs; then those that are held for another reason are counted, too.
    due, max(later - retrying, CASE WHEN later < :most THEN 0 ELSE held END) AS scheduled, retrying, running, waiting,
    succeeded, dead, caught, cancelled
FROM (
    SELECT
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN redrive_jobs AS job
            WHERE NOT lane.is_parted AND (:task IS NULL OR lane.task = :task)
                AND job.state = 'ready' AND job.partition IS NULL
                AND job.queue = lane.queue AND job.priority = lane.priority AND job.task = lane.task
                AND job.scheduled_at <= :now AND job.id > :after_id
            UNION ALL
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN redrive_jobs AS job
            WHERE lane.is_parted AND (:task IS NULL OR lane.task = :task)
                AND job.state = 'ready' AND job.partition IS NOT NULL
                AND job.queue = lane.queue AND job.priority = lane.priority AND job.task = lane.task
                AND job.scheduled_at <= :now AND job.id > :after_id
            LIMIT :most
        ) AS found
    ) AS due,
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN redrive_jobs AS job
            WHERE NOT lane.is_parted AND (:task IS NULL OR lane.task = :task)
                AND job.state = 'ready' AND job.partition IS NULL
                AND job.queue = lane.queue AND job.priority = lane.priority AND job.task = lane.task
                AND job.scheduled_at > :now AND job.id > :after_id
            UNION ALL
            SELECT job.id
            FROM redrive_ready_lanes AS lane
            CROSS JOIN redrive_jobs AS job
            WHERE lane.is_parted AND (:task IS NULL OR lane.task = :task)
                AND job.state = 'ready' AND job.partition IS NOT NULL
                AND job.queue = lane.queue AND job.priority = lane.priority AND job.task = lane.task
                AND job.scheduled_at > :now AND job.id > :after_id
            LIMIT :most
        ) AS found
    ) AS later,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE hold = 'retry' AND scheduled_at > :now AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY scheduled_at
            LIMIT :most
        ) AS found
    ) AS retrying,
    (
        SELECT count(*) FROM (
            SELECT job.id
            FROM json_each(:holds) AS given
            CROSS JOIN redrive_jobs AS job
            WHERE job.hold = given.value AND job.scheduled_at > :now AND job.id > :after_id
                AND (:task IS NULL OR job.task = :task)
            LIMIT :most
        ) AS found
    ) AS held,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'running' AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY worker_id
            LIMIT :most
        ) AS found
    ) AS running,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'waiting' AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY scheduled_at
            LIMIT :most
        ) AS found
    ) AS waiting,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE state = 'dead' AND caught_at IS NULL AND (skipped_at > finished_at) IS NOT TRUE
                AND (origin IS NULL OR origin NOT LIKE 'refresh:%') AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY id DESC
            LIMIT :most
        ) AS found
    ) AS dead,
    (
        SELECT count(*) FROM (
            SELECT id FROM redrive_jobs
            WHERE caught_at IS NOT NULL AND (origin IS NULL OR origin NOT LIKE 'refresh:%') AND id > :after_id AND (:task IS NULL OR task = :task)
            ORDER BY id DESC
            LIMIT :most
        ) AS found
    ) AS caught
) AS counted
CROSS JOIN (
    SELECT
        count(*) FILTER (WHERE state = 'succeeded' AND (:task IS NULL OR task = :task)) AS succeeded,
        count(*) FILTER (WHERE state = 'cancelled' AND (:task IS NULL OR task = :task)) AS cancelled
    FROM (SELECT state, task FROM redrive_jobs WHERE id > :after_id ORDER BY id DESC LIMIT :most) AS newest
) AS ended

-- name: server
-- Return the system identifier and the timeline of a primary server, as `redrive.stores.drivers.postgres.timeline` does.
-- transaction: none
-- postgres
SELECT CASE WHEN NOT pg_is_in_recovery() THEN (SELECT system_identifier FROM pg_control_system()) || ' '
    || left(pg_walfile_name(pg_current_wal_lsn()), 8) END
-- sqlite
SELECT NULL
