-- Insert an emitted value, unless the name has one, and return the name.
-- Called by emit.
INSERT INTO redrive_emits (name, payload, at, expires_at, pending)
VALUES (:name, :payload, :now, :expires_at, 1)
ON CONFLICT (name) DO NOTHING
RETURNING name
