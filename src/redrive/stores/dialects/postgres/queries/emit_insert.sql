-- Insert an emitted value, unless the name has one, and return the name.
-- Called by emit. It locks no run, because it may be a part of a transaction that stays open.
INSERT INTO redrive_emits (name, payload, at, expires_at, pending)
VALUES (:name::text, :payload::bytea, :now::timestamptz, :expires_at::timestamptz, true)
ON CONFLICT (name) DO NOTHING
RETURNING name
