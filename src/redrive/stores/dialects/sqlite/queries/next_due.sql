-- Answers when the earliest ready job of these queues is due.
-- Called by claim, so that an idle worker knows how long it may rest.
SELECT min((
    SELECT scheduled_at FROM redrive_jobs
    WHERE state = 'ready' AND queue = lane.queue AND priority = lane.priority
    ORDER BY scheduled_at
    LIMIT 1
)) AS due_at
FROM redrive_lanes AS lane
WHERE :queues IS NULL OR lane.queue IN (SELECT value FROM json_each(:queues))
