-- Delete keys that are too old, at most as many as given.
-- Called by begin.
DELETE FROM redrive_requests
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM redrive_requests WHERE begun_at <= :before::timestamptz ORDER BY begun_at LIMIT :count::bigint
))
