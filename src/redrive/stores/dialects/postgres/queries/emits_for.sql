-- Return the emitted values that these runs wait for.
-- Called by claim and arrived.
-- transaction: none
SELECT step.run_id, emit.name, emit.payload, emit.at
FROM redrive_steps AS step
JOIN redrive_emits AS emit ON emit.name = step.name
WHERE step.run_id = ANY (:ids::bigint[]) AND step.outcome = 'waiting' AND step.kind = 'event'
