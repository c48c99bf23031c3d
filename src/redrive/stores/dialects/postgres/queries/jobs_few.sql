-- Return ids of jobs in one state, or that wait for one reason, from the partial index of each, up to a limit.
-- Called by select, to find whether they are few. Succeeded and cancelled jobs have no such index.
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
