-- Return ids of jobs in one state, or that wait for one reason, from the partial index of each, up to a limit.
-- Called by select, to find whether they are few. Succeeded and cancelled jobs have no such index.
SELECT id FROM (
    SELECT id FROM redrive_jobs WHERE hold = :hold
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'ready' AND partition IS NULL AND :state = 'ready' AND :hold IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'ready' AND partition IS NOT NULL AND :state = 'ready' AND :hold IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'running' AND :state = 'running' AND :hold IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'waiting' AND :state = 'waiting' AND :hold IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE state = 'dead' AND caught_at IS NULL AND :state = 'dead' AND :hold IS NULL
    UNION ALL
    SELECT id FROM redrive_jobs WHERE caught_at IS NOT NULL AND :state = 'dead' AND :hold IS NULL
) AS found
LIMIT :most
