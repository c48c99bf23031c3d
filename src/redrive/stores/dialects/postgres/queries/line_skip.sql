-- Let the events behind dead deliveries pass, unless their subscriptions stop at a dead event.
-- Called at the end of a delivery, in the same transaction.
UPDATE redrive_jobs AS job SET skipped_at = given.now
FROM unnest(:id::bigint[], :topic::text[], :subscription::text[], :now::timestamptz[]) AS given (id, topic, subscription, now)
JOIN redrive_subscriptions AS subscription
    ON subscription.topic = given.topic AND subscription.name = given.subscription AND subscription.dead = 'continue'
-- As in settle_succeeded: the planner must not use the index of dead jobs.
WHERE job.id = ANY (:id) AND job.id = given.id AND job.state || '' = 'dead' AND job.caught_at IS NULL
    AND job.skipped_at IS NULL
