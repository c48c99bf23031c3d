-- Delete keys that are too old, at most as many as given.
-- Called by begin.
DELETE FROM redrive_requests
WHERE (actor, key) IN (
    SELECT actor, key FROM redrive_requests WHERE begun_at <= :before::timestamptz ORDER BY begun_at LIMIT :count::bigint
)
