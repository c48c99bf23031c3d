-- The statements of operations/redriving.py.

-- name: hasten
-- Make a ready job due now, although it may have expired.
-- postgres
UPDATE redrive_jobs SET
    scheduled_at = least(scheduled_at, :now::timestamptz), hold = NULL, unreadable_at = NULL,
    -- It runs although it has expired, because an operator demands it.
    expires_at = CASE WHEN expires_at > :now THEN expires_at END
WHERE id = :id::bigint AND state = 'ready' AND (scheduled_at > :now OR expires_at <= :now)
RETURNING id
-- sqlite
UPDATE redrive_jobs SET
    scheduled_at = min(scheduled_at, :now), hold = NULL, unreadable_at = NULL,
    -- It runs although it has expired, because an operator demands it.
    expires_at = CASE WHEN expires_at > :now THEN expires_at END
WHERE id = :id AND state = 'ready' AND (scheduled_at > :now OR expires_at <= :now)
RETURNING id

-- name: steps_hasten
-- Make the waiting steps of a job due now for their next tries; sleeps and other waits keep their times.
-- both
UPDATE redrive_steps SET due_at = :now::timestamptz
WHERE run_id = :run_id::bigint AND outcome = 'waiting' AND tries > 0 AND due_at > :now

-- name: redrive
-- Start dead or cancelled jobs again, each a given time after the one before, and return those that started.
-- A redrive forgives all failures, a retry the last one.
-- postgres
UPDATE redrive_jobs AS job SET
    state = 'ready',
    hold = 'redrive',
    note = :note::text,
    queue = coalesce(:queue::text, job.queue),
    scheduled_at = greatest(
        :first_at::timestamptz + :spacing::interval * (chosen.ordinal - 1), CASE WHEN :keep_due::boolean THEN job.scheduled_at END
    ),
    started_at = NULL,
    finished_at = NULL,
    skipped_at = NULL,
    expires_at = NULL,
    failures = greatest(0, job.failures - coalesce(:forgive::integer, job.failures)),
    crashes = 0,
    by_rule = CASE WHEN :forgive IS NULL THEN NULL ELSE job.by_rule END,
    last_delay = NULL,
    unreadable_at = NULL,
    redrives = job.redrives + 1
FROM unnest(:ids::bigint[]) WITH ORDINALITY AS chosen (id, ordinal)
WHERE job.id = ANY (:ids) AND job.id = chosen.id
    AND job.state IN ('dead', 'cancelled')
    AND job.caught_at IS NULL
RETURNING job.id
-- sqlite
UPDATE redrive_jobs SET
    state = 'ready',
    hold = 'redrive',
    note = :note,
    queue = coalesce(:queue, queue),
    scheduled_at = max(:first_at + :spacing * chosen.key, CASE WHEN :keep_due THEN scheduled_at ELSE 0 END),
    started_at = NULL,
    finished_at = NULL,
    skipped_at = NULL,
    expires_at = NULL,
    failures = max(0, failures - coalesce(:forgive, failures)),
    crashes = 0,
    by_rule = CASE WHEN :forgive IS NULL THEN NULL ELSE by_rule END,
    last_delay = NULL,
    unreadable_at = NULL,
    redrives = redrives + 1
FROM json_each(:ids) AS chosen
WHERE redrive_jobs.id = chosen.value
    AND state IN ('dead', 'cancelled')
    AND caught_at IS NULL
RETURNING redrive_jobs.id

-- name: tag_add
-- Give jobs a tag that some of them may have.
-- postgres
INSERT INTO redrive_tags (tag, job_id)
SELECT * FROM unnest(:tag::text[], :job_id::bigint[])
ON CONFLICT DO NOTHING
-- sqlite
INSERT INTO redrive_tags (tag, job_id)
VALUES (:tag, :job_id)
ON CONFLICT DO NOTHING

-- name: families
-- Return for each of these jobs the state of its family, which is a dead job and its catch jobs.
-- It explains why a job must stay as it is: one death is caught once.
-- postgres
SELECT
    job.id,
    EXISTS (
        SELECT FROM redrive_jobs AS child
        WHERE child.parent_id = job.id AND child.state IN ('ready', 'running', 'waiting')
        OFFSET 0
    ) AS catching,
    EXISTS (
        SELECT FROM redrive_jobs AS twin
        WHERE twin.parent_id = job.parent_id AND twin.id <> job.id AND twin.state IN ('ready', 'running', 'waiting')
        OFFSET 0
    ) AS twin,
    job.parent_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM redrive_jobs AS parent
        WHERE parent.id = job.parent_id AND parent.state = 'dead' AND parent.caught_at IS NULL
        OFFSET 0
    ) AS pointless
FROM redrive_jobs AS job
WHERE job.id = ANY (:ids::bigint[])
-- sqlite
SELECT
    job.id,
    EXISTS (
        SELECT 1 FROM redrive_jobs AS child
        WHERE child.parent_id = job.id AND child.state IN ('ready', 'running', 'waiting')
    ) AS catching,
    EXISTS (
        SELECT 1 FROM redrive_jobs AS twin
        WHERE twin.parent_id = job.parent_id AND twin.id <> job.id AND twin.state IN ('ready', 'running', 'waiting')
    ) AS twin,
    job.parent_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM redrive_jobs AS parent
        WHERE parent.id = job.parent_id AND parent.state = 'dead' AND parent.caught_at IS NULL
    ) AS pointless
FROM redrive_jobs AS job
WHERE job.id IN (SELECT value FROM json_each(:ids))

-- name: repolicy
-- Give jobs another policy; due times stay, except of jobs that are held because their policy cannot be read.
-- both
UPDATE redrive_jobs SET
    policy = :policy::text,
    timeout_for = :timeout_for::interval,
    by_rule = NULL,
    scheduled_at = CASE WHEN hold = 'bad_policy' THEN :now::timestamptz ELSE scheduled_at END,
    unreadable_at = CASE WHEN hold = 'bad_policy' THEN NULL ELSE unreadable_at END,
    hold = CASE WHEN hold = 'bad_policy' THEN NULL ELSE hold END
WHERE id = ANY (:ids::bigint[]) AND (state IN ('ready', 'waiting') OR (state = 'running' AND hold = 'bad_policy'))
