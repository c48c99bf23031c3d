-- Return the emitted values that these runs wait for.
-- Called by claim and arrived.
SELECT step.run_id, emit.name, emit.payload, emit.at
FROM redrive_steps AS step
JOIN redrive_emits AS emit ON emit.name = step.name
WHERE step.run_id IN (SELECT value FROM json_each(:ids)) AND step.outcome = 'waiting' AND step.kind = 'event'
