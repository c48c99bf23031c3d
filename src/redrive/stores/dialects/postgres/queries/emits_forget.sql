-- Delete emitted values that have expired, at most as many as given, and return their names.
-- Called by forget_emits.
DELETE FROM redrive_emits
WHERE name = ANY (ARRAY(
    SELECT name FROM redrive_emits WHERE expires_at <= :now::timestamptz ORDER BY expires_at LIMIT :count::bigint
))
RETURNING name
