-- Insert the key of a request, or replace one that is too old, and return the key; nothing if it is taken.
-- Called by begin.
INSERT INTO redrive_requests (actor, key, digest, begun_at, answer)
VALUES (:actor::text, :key::text, :digest::text, :now::timestamptz, NULL)
ON CONFLICT (actor, key) DO UPDATE SET digest = excluded.digest, begun_at = excluded.begun_at, answer = NULL
WHERE redrive_requests.begun_at <= :before::timestamptz
RETURNING key
