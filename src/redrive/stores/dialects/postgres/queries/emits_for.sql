-- Return the emitted values that these runs wait for.
-- Called by claim and arrived.
-- transaction: none
SELECT step.run_id, emit.name, emit.payload, emit.at
FROM redrive_steps AS step
CROSS JOIN LATERAL (SELECT name, payload, at FROM redrive_emits WHERE name = step.name OFFSET 0) AS emit
-- As in settle_succeeded: the planner must not use the index of waits for events.
WHERE step.run_id = ANY (:ids::bigint[]) AND step.outcome = 'waiting' AND step.kind || '' = 'event'
