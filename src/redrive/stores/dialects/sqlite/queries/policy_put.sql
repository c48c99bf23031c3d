-- Keeps the texts of policies under their digests, each once; one that was retired is in use again.
-- Called by enqueue and repolicy. SQLite has one writer at a time, so no enqueue waits for another one here.
INSERT INTO redrive_policies (digest, document) VALUES (:digest, :document)
ON CONFLICT (digest) DO UPDATE SET retired_at = NULL WHERE retired_at IS NOT NULL
