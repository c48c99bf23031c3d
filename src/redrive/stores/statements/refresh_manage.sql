-- The statements of operations/refresh/manage.py.

-- name: refresh_insert
-- Insert items, and return their keys without those that existed.
-- many: rows
-- postgres
INSERT INTO redrive_refreshes (
    schedule, key, payload,
-- include refresh_columns
)
SELECT
    schedule, key, payload,
-- include refresh_columns
FROM unnest(
    :schedule::text[], :key::text[], :payload::bytea[], :own::text[], :timing::text[], :tracked_at::timestamptz[],
    :refresh_at::timestamptz[], :deadline_at::timestamptz[], :planned_at::timestamptz[], :started_at::timestamptz[],
    :due_at::timestamptz[], :failing_since::timestamptz[], :succeeded_at::timestamptz[], :sweep_at::timestamptz[],
    :attempt_no::integer[], :attempts_since_success::integer[], :job_id::bigint[], :disabled_until_update::boolean[],
    :disabled_reason::text[], :completed::boolean[], :paused::boolean[]
) AS given (
    schedule, key, payload,
-- include refresh_columns
)
ON CONFLICT (schedule, key) DO NOTHING
RETURNING key
-- sqlite
INSERT INTO redrive_refreshes (
    schedule, key, payload, own, timing, tracked_at, refresh_at, deadline_at, planned_at, started_at, due_at,
    failing_since, succeeded_at, sweep_at, attempt_no, attempts_since_success, job_id, disabled_until_update,
    disabled_reason, completed, paused
) VALUES (
    :schedule, :key, :payload, :own, :timing, :tracked_at, :refresh_at, :deadline_at, :planned_at, :started_at,
    :due_at, :failing_since, :succeeded_at, :sweep_at, :attempt_no, :attempts_since_success, :job_id,
    :disabled_until_update, :disabled_reason, :completed, :paused
)
ON CONFLICT (schedule, key) DO NOTHING
RETURNING key

-- name: refresh_change
-- Write the arguments and the policies of items.
-- For items that are tracked already.
-- postgres
UPDATE redrive_refreshes AS thing SET payload = given.payload, own = given.own
FROM unnest(:schedule::text[], :key::text[], :payload::bytea[], :own::text[]) AS given (schedule, key, payload, own)
CROSS JOIN LATERAL (
    SELECT ctid AS place FROM redrive_refreshes WHERE schedule = given.schedule AND key = given.key OFFSET 0
) AS found
WHERE thing.ctid = found.place
-- sqlite
UPDATE redrive_refreshes SET payload = :payload, own = :own WHERE schedule = :schedule AND key = :key

-- name: refresh_forget
-- Delete an item, and return its key.
-- both
DELETE FROM redrive_refreshes WHERE schedule = :schedule AND key = :key
RETURNING key

-- name: locks_mark
-- Mark the locks that this transaction holds, so that later ones can be given back.
-- SQLite has one writer at a time and needs no lock.
-- postgres
SAVEPOINT locks /* of redrive_refreshes: a statement of a process that has stopped is known by its table (stuck_end) */
-- sqlite
SELECT 1 WHERE 0

-- name: locks_keep
-- Forget the mark, because many of them in one transaction make the whole server slow.
-- SQLite has one writer at a time and needs no lock.
-- postgres
RELEASE SAVEPOINT locks /* of redrive_refreshes */
-- sqlite
SELECT 1 WHERE 0

-- name: locks_release
-- Release the locks of rows that this transaction has taken since the mark.
-- For an item that has got another attempt. SQLite has one writer at a time, so none gets one meanwhile.
-- postgres
ROLLBACK TO SAVEPOINT locks /* of redrive_refreshes */
-- sqlite
SELECT 1 WHERE 0
