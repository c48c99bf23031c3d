-- The statements of operations/counters.py.

-- name: minutes_put
-- Write the sums of ended attempts: absolute values, so that a repeated write counts nothing twice.
-- postgres
INSERT INTO redrive_minutes (
    at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took, tries
)
SELECT at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took::integer[], tries::integer[]
FROM unnest(
    :at::timestamptz[], :worker_id::bigint[], :queue::text[], :task::text[], :succeeded::bigint[], :retried::bigint[],
    :died::bigint[], :snoozed::bigint[], :lost::bigint[], :cancelled::bigint[], :took::text[], :tries::text[]
) AS given (at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took, tries)
ORDER BY at, queue, task
ON CONFLICT (at, worker_id, queue, task) DO UPDATE SET
    succeeded = excluded.succeeded,
    retried = excluded.retried,
    died = excluded.died,
    snoozed = excluded.snoozed,
    lost = excluded.lost,
    cancelled = excluded.cancelled,
    took = excluded.took,
    tries = excluded.tries
-- sqlite
INSERT INTO redrive_minutes (
    at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took, tries
)
VALUES (
    :at, :worker_id, :queue, :task, :succeeded, :retried, :died, :snoozed, :lost, :cancelled, :took, :tries
)
ON CONFLICT (at, worker_id, queue, task) DO UPDATE SET
    succeeded = excluded.succeeded,
    retried = excluded.retried,
    died = excluded.died,
    snoozed = excluded.snoozed,
    lost = excluded.lost,
    cancelled = excluded.cancelled,
    took = excluded.took,
    tries = excluded.tries

-- name: errors_put
-- Write error groups as a worker has seen them; of all writes the first and the last failure count.
-- postgres
INSERT INTO redrive_errors (fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id)
SELECT * FROM unnest(
    :fingerprint::text[], :task::text[], :reason::text[], :type::text[], :title::text[], :frame::text[],
    :first_at::timestamptz[], :last_at::timestamptz[], :last_job_id::bigint[]
) AS given (fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id)
-- In one order, so that two workers do not wait for each other.
ORDER BY fingerprint
ON CONFLICT (fingerprint) DO UPDATE SET
    first_at = least(redrive_errors.first_at, excluded.first_at),
    last_job_id = CASE
        WHEN excluded.last_at > redrive_errors.last_at THEN excluded.last_job_id ELSE redrive_errors.last_job_id
    END,
    last_at = greatest(redrive_errors.last_at, excluded.last_at)
WHERE excluded.first_at < redrive_errors.first_at OR excluded.last_at > redrive_errors.last_at
-- sqlite
INSERT INTO redrive_errors (fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id)
VALUES (:fingerprint, :task, :reason, :type, :title, :frame, :first_at, :last_at, :last_job_id)
ON CONFLICT (fingerprint) DO UPDATE SET
    first_at = min(redrive_errors.first_at, excluded.first_at),
    last_job_id = CASE
        WHEN excluded.last_at > redrive_errors.last_at THEN excluded.last_job_id ELSE redrive_errors.last_job_id
    END,
    last_at = max(redrive_errors.last_at, excluded.last_at)
WHERE excluded.first_at < redrive_errors.first_at OR excluded.last_at > redrive_errors.last_at

-- name: error_hours_put
-- Write the failures of error groups by hour: absolute values, so that a repeated write counts nothing twice.
-- postgres
INSERT INTO redrive_error_hours (fingerprint, at, worker_id, failures, deaths)
SELECT * FROM unnest(
    :fingerprint::text[], :at::timestamptz[], :worker_id::bigint[], :failures::bigint[], :deaths::bigint[]
) AS given (fingerprint, at, worker_id, failures, deaths)
ON CONFLICT (fingerprint, at, worker_id) DO UPDATE SET failures = excluded.failures, deaths = excluded.deaths
WHERE redrive_error_hours.failures <> excluded.failures
-- sqlite
INSERT INTO redrive_error_hours (fingerprint, at, worker_id, failures, deaths)
VALUES (:fingerprint, :at, :worker_id, :failures, :deaths)
ON CONFLICT (fingerprint, at, worker_id) DO UPDATE SET failures = excluded.failures, deaths = excluded.deaths
WHERE redrive_error_hours.failures <> excluded.failures

-- name: depths_noted
-- Return a row if the depths of this minute are written.
-- both
SELECT 1 FROM redrive_depths WHERE at = :at::timestamptz LIMIT 1

-- name: depths_put
-- Write the depths of queues in a minute; those that another worker has written stay.
-- postgres
INSERT INTO redrive_depths (at, queue, due, later, running, waiting, dead, oldest_for, due_capped, lag, lag_for)
SELECT * FROM unnest(
    :at::timestamptz[], :queue::text[], :due::bigint[], :later::bigint[], :running::bigint[], :waiting::bigint[],
    :dead::bigint[], :oldest_for::interval[], :due_capped::boolean[], :lag::bigint[], :lag_for::interval[]
) AS given (at, queue, due, later, running, waiting, dead, oldest_for, due_capped, lag, lag_for)
ORDER BY queue
ON CONFLICT (at, queue) DO NOTHING
-- sqlite
INSERT INTO redrive_depths (at, queue, due, later, running, waiting, dead, oldest_for, due_capped, lag, lag_for)
VALUES (:at, :queue, :due, :later, :running, :waiting, :dead, :oldest_for, :due_capped, :lag, :lag_for)
ON CONFLICT (at, queue) DO NOTHING

-- name: minutes_sums
-- Return the sums of ended attempts by span, queue and task; rows of all resolutions are added up.
-- postgres
SELECT
    date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00') AS at, queue, task,
    sum(succeeded)::bigint AS succeeded,
    sum(retried)::bigint AS retried,
    sum(died)::bigint AS died,
    sum(snoozed)::bigint AS snoozed,
    sum(lost)::bigint AS lost,
    sum(cancelled)::bigint AS cancelled
FROM redrive_minutes
WHERE at >= :since::timestamptz AND (:queue::text IS NULL OR queue = :queue)
GROUP BY 1, queue, task
ORDER BY 1, queue, task
-- sqlite
SELECT
    at - at % :width AS at, queue, task,
    sum(succeeded) AS succeeded,
    sum(retried) AS retried,
    sum(died) AS died,
    sum(snoozed) AS snoozed,
    sum(lost) AS lost,
    sum(cancelled) AS cancelled
FROM redrive_minutes
WHERE at >= :since AND (:queue IS NULL OR queue = :queue)
GROUP BY 1, queue, task
ORDER BY 1, queue, task

-- name: depths_past
-- Return the largest numbers of jobs, and the longest time since the first was due, of each queue in each span.
-- postgres
SELECT
    date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00') AS at, queue, max(due) AS due,
    max(oldest_for) AS oldest_for, bool_or(due_capped) AS due_capped, max(later) AS later, max(running) AS running,
    max(dead) AS dead
FROM redrive_depths
WHERE at >= :since::timestamptz AND (:queue::text IS NULL OR queue = :queue)
GROUP BY 1, queue
ORDER BY 1, queue
-- sqlite
SELECT at - at % :width AS at, queue, max(due) AS due, max(oldest_for) AS oldest_for,
    max(due_capped) AS due_capped, max(later) AS later, max(running) AS running, max(dead) AS dead
FROM redrive_depths
WHERE at >= :since AND (:queue IS NULL OR queue = :queue)
GROUP BY 1, queue
ORDER BY 1, queue

-- name: lag_past
-- Return the present instant, the builds that began within a span that ends with it, and the largest lag of a subscription
-- in each part of the span.
-- postgres
WITH moment AS MATERIALIZED (
    SELECT at, date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00') - :span::interval + :width AS since
    FROM (SELECT coalesce(:now::timestamptz, now) AS at FROM redrive_clock) AS present
)
SELECT 'clock' AS kind, at, NULL::text AS build, NULL::bigint AS lag, NULL::interval AS lag_for FROM moment
UNION ALL
(
    SELECT 'build', first_at, build, NULL, NULL FROM redrive_builds
    WHERE first_at >= (SELECT since FROM moment)
    ORDER BY first_at, build
)
UNION ALL
SELECT 'lag', date_bin(:width, at, timestamptz '1970-01-01 00:00:00+00') AS start, NULL, max(lag), max(lag_for)
FROM redrive_depths
WHERE at >= (SELECT since FROM moment) AND queue = :queue::text AND lag IS NOT NULL
GROUP BY start
-- sqlite
WITH moment AS MATERIALIZED (
    SELECT at, at - at % :width - :span + :width AS since
    FROM (SELECT coalesce(:now, now) AS at FROM redrive_clock) AS present
)
SELECT 'clock' AS kind, at, NULL AS build, NULL AS lag, NULL AS lag_for FROM moment
UNION ALL
SELECT * FROM (
    SELECT 'build', first_at, build, NULL, NULL FROM redrive_builds
    WHERE first_at >= (SELECT since FROM moment)
    ORDER BY first_at, build
)
UNION ALL
SELECT 'lag', at - at % :width AS start, NULL, max(lag), max(lag_for)
FROM redrive_depths
WHERE at >= (SELECT since FROM moment) AND queue = :queue AND lag IS NOT NULL
GROUP BY start

-- name: minutes_buckets
-- Return the number of ended attempts by the bucket of the time that they took: for each queue and task, and of all for
-- each span; and the number of retries by the number of the attempt.
-- postgres
WITH counted AS MATERIALIZED (
    SELECT date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00') AS at, queue, task,
        each.place - 1 AS place, sum(each.jobs) AS jobs
    FROM redrive_minutes
    CROSS JOIN LATERAL unnest(took) WITH ORDINALITY AS each (jobs, place)
    WHERE at >= :since::timestamptz AND (:queue::text IS NULL OR queue = :queue) AND each.jobs > 0
    GROUP BY 1, queue, task, each.place
)
SELECT NULL::timestamptz AS at, queue, task, place, sum(jobs)::bigint AS jobs
FROM counted
GROUP BY queue, task, place
UNION ALL
SELECT at, NULL AS queue, NULL AS task, place, sum(jobs)::bigint AS jobs
FROM counted
GROUP BY at, place
UNION ALL
SELECT NULL AS at, NULL AS queue, NULL AS task, each.place - 1 AS place, sum(each.jobs)::bigint AS jobs
FROM redrive_minutes
CROSS JOIN LATERAL unnest(tries) WITH ORDINALITY AS each (jobs, place)
WHERE at >= :since AND (:queue IS NULL OR queue = :queue) AND each.jobs > 0
GROUP BY each.place
-- sqlite
WITH counted AS MATERIALIZED (
    SELECT at - at % :width AS at, queue, task, each.key AS place, sum(each.value) AS jobs
    FROM redrive_minutes, json_each(redrive_minutes.took) AS each
    WHERE at >= :since AND (:queue IS NULL OR queue = :queue) AND each.value > 0
    GROUP BY 1, queue, task, each.key
)
SELECT NULL AS at, queue, task, place, sum(jobs) AS jobs
FROM counted
GROUP BY queue, task, place
UNION ALL
SELECT at, NULL AS queue, NULL AS task, place, sum(jobs) AS jobs
FROM counted
GROUP BY at, place
UNION ALL
SELECT NULL AS at, NULL AS queue, NULL AS task, each.key AS place, sum(each.value) AS jobs
FROM redrive_minutes, json_each(redrive_minutes.tries) AS each
WHERE at >= :since AND (:queue IS NULL OR queue = :queue) AND each.value > 0
GROUP BY each.key

-- name: minutes_compared
-- Return the sums of ended attempts by task, before and after a change of the code: by worker where it is known, and else
-- by time.
-- postgres
WITH told AS MATERIALIZED (
    SELECT task, succeeded, retried, died, snoozed, cancelled,
        CASE
            WHEN worker_id = ANY (:after::bigint[]) THEN TRUE
            WHEN worker_id = ANY (:before::bigint[]) THEN FALSE
            WHEN worker_id = ANY (:others::bigint[]) THEN NULL
            WHEN at >= :after_from::timestamptz THEN TRUE
            WHEN at < :before_until::timestamptz THEN FALSE
        END AS is_after
    FROM redrive_minutes
    WHERE at >= :begin::timestamptz AND at <= :until::timestamptz
)
SELECT task, is_after, sum(succeeded)::bigint AS succeeded, sum(retried)::bigint AS retried, sum(died)::bigint AS died,
    sum(snoozed)::bigint AS snoozed, sum(cancelled)::bigint AS cancelled
FROM told
WHERE is_after IS NOT NULL
GROUP BY task, is_after
-- sqlite
WITH told AS MATERIALIZED (
    SELECT task, succeeded, retried, died, snoozed, cancelled,
        CASE
            WHEN worker_id IN (SELECT value FROM json_each(:after)) THEN 1
            WHEN worker_id IN (SELECT value FROM json_each(:before)) THEN 0
            WHEN worker_id IN (SELECT value FROM json_each(:others)) THEN NULL
            WHEN at >= :after_from THEN 1
            WHEN at < :before_until THEN 0
        END AS is_after
    FROM redrive_minutes
    WHERE at >= :begin AND at <= :until
)
SELECT task, is_after, sum(succeeded) AS succeeded, sum(retried) AS retried, sum(died) AS died,
    sum(snoozed) AS snoozed, sum(cancelled) AS cancelled
FROM told
WHERE is_after IS NOT NULL
GROUP BY task, is_after

-- name: minutes_unrolled
-- Return the beginning of the first row after an instant that is to be rolled up; NULL if there is none.
-- postgres
SELECT min(at) AS at FROM redrive_minutes
WHERE at >= :after::timestamptz AND at < :before::timestamptz
    AND (worker_id <> 0 OR at <> date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00'))
-- sqlite
SELECT min(at) AS at FROM redrive_minutes
WHERE at >= :after AND at < :before AND (worker_id <> 0 OR at % :width <> 0)

-- name: minutes_span
-- Return the sums of all workers within a span.
-- both
SELECT at, worker_id, queue, task, succeeded, retried, died, snoozed, lost, cancelled, took, tries
FROM redrive_minutes
WHERE at >= :start::timestamptz AND at < :until::timestamptz

-- name: minutes_drop
-- Delete the sums of a span.
-- both
DELETE FROM redrive_minutes WHERE at >= :start::timestamptz AND at < :until::timestamptz

-- name: depths_thin
-- Delete the depths before an instant, but for those at whole spans of a width.
-- postgres
DELETE FROM redrive_depths WHERE at < :before::timestamptz AND at <> date_bin(:width::interval, at, timestamptz '1970-01-01 00:00:00+00')
-- sqlite
DELETE FROM redrive_depths WHERE at < :before AND at % :width <> 0

-- name: depths_forget
-- Delete the depths before an instant.
-- both
DELETE FROM redrive_depths WHERE at < :before::timestamptz

-- name: error_hours_forget
-- Delete the failures of old hours.
-- both
DELETE FROM redrive_error_hours WHERE at < :before::timestamptz

-- name: errors_forget
-- Delete error groups that have not failed since an instant and have no dead job.
-- postgres
DELETE FROM redrive_errors AS found
WHERE last_at < :before::timestamptz
    AND NOT EXISTS (
        SELECT FROM redrive_jobs AS job
        WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
            AND (skipped_at > finished_at) IS NOT TRUE
        OFFSET 0
    )
-- sqlite
DELETE FROM redrive_errors
WHERE last_at < :before
    AND NOT EXISTS (
        SELECT 1 FROM redrive_jobs AS job
        WHERE job.fingerprint = redrive_errors.fingerprint AND state = 'dead' AND caught_at IS NULL
    )

-- name: errors_within
-- Return the error groups that have failed since the beginning of an hour, the most frequent first.
-- both
SELECT counted.fingerprint, CAST(sum(counted.failures) AS bigint) AS failures, CAST(sum(counted.deaths) AS bigint) AS deaths
FROM redrive_errors AS found
CROSS JOIN redrive_error_hours AS counted
WHERE found.last_at >= :since::timestamptz AND counted.fingerprint = found.fingerprint AND counted.at >= :since
    AND (:task::text IS NULL OR found.task = :task)
GROUP BY counted.fingerprint
ORDER BY 2 DESC, 1
LIMIT :count::bigint

-- name: errors_select
-- Return error groups with their dead jobs up to a limit and the failures of 24 hours, the latest failure first.
-- postgres
SELECT fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id, muted_at, muted_until,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
                AND (skipped_at > finished_at) IS NOT TRUE
            LIMIT :most::bigint
        ) AS counted
    ) AS dead,
    ARRAY(
        SELECT coalesce(sum(failures), 0)::bigint
        FROM generate_series(0, 23) AS hour
        LEFT JOIN redrive_error_hours AS counted
            ON counted.fingerprint = found.fingerprint
            AND counted.at = :since::timestamptz + hour * interval '1 hour'
        GROUP BY hour
        ORDER BY hour
    ) AS hours,
    (
        SELECT coalesce(sum(deaths), 0)::bigint FROM redrive_error_hours AS counted
        WHERE counted.fingerprint = found.fingerprint AND at >= :since
    ) AS deaths
FROM redrive_errors AS found
WHERE (:fingerprints::text[] IS NULL OR fingerprint = ANY (:fingerprints))
    AND (:task::text IS NULL OR task = :task)
    AND (:before_at::timestamptz IS NULL OR (last_at, fingerprint) < (:before_at, :before::text))
    AND (
        NOT :dead::boolean
        OR EXISTS (
            SELECT FROM redrive_jobs AS job
            WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
                AND (skipped_at > finished_at) IS NOT TRUE
        )
    )
    AND (
        NOT :unmuted::boolean OR muted_at IS NULL OR (muted_until IS NULL AND last_at > muted_at) OR muted_until <= :now::timestamptz
    )
ORDER BY last_at DESC, fingerprint DESC
LIMIT :count::bigint
-- sqlite
SELECT fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id, muted_at, muted_until,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
                AND (skipped_at > finished_at) IS NOT TRUE
            LIMIT :most
        ) AS counted
    ) AS dead,
    (
        SELECT json_group_array(failures) FROM (
            WITH RECURSIVE hours (hour) AS (SELECT 0 UNION ALL SELECT hour + 1 FROM hours WHERE hour < 23)
            SELECT coalesce(sum(failures), 0) AS failures
            FROM hours
            LEFT JOIN redrive_error_hours AS counted
                ON counted.fingerprint = found.fingerprint AND counted.at = :since + hour * 3600000000
            GROUP BY hour
            ORDER BY hour
        ) AS series
    ) AS hours,
    (
        SELECT coalesce(sum(deaths), 0) FROM redrive_error_hours AS counted
        WHERE counted.fingerprint = found.fingerprint AND at >= :since
    ) AS deaths
FROM redrive_errors AS found
WHERE (:fingerprints IS NULL OR fingerprint IN (SELECT value FROM json_each(:fingerprints)))
    AND (:task IS NULL OR task = :task)
    AND (:before_at IS NULL OR last_at < :before_at OR (last_at = :before_at AND fingerprint < :before))
    AND (
        NOT :dead
        OR EXISTS (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
                AND (skipped_at > finished_at) IS NOT TRUE
        )
    )
    AND (
        NOT :unmuted OR muted_at IS NULL OR (muted_until IS NULL AND last_at > muted_at) OR muted_until <= :now
    )
ORDER BY last_at DESC, fingerprint DESC
LIMIT :count

-- name: errors_mute
-- Mute an error group until an instant or its next failure, or take that back; return it if it exists.
-- both
UPDATE redrive_errors
SET muted_at = :muted_at::timestamptz, muted_until = :muted_until::timestamptz
WHERE fingerprint = :fingerprint::text
RETURNING fingerprint

-- name: builds_forget
-- Delete the builds before an instant that no worker has.
-- both
DELETE FROM redrive_builds
WHERE first_at < :before::timestamptz AND NOT EXISTS (SELECT FROM redrive_workers WHERE build = redrive_builds.build)
