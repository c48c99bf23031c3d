-- Insert the texts of policies under their digests, unless there is a row that is not retired.
-- Called by enqueue and repolicy; it waits for no other transaction, and may insert a second row on PostgreSQL.
INSERT INTO redrive_policies (digest, document) VALUES (:digest, :document)
ON CONFLICT (digest) DO UPDATE SET retired_at = NULL WHERE retired_at IS NOT NULL
