INSERT INTO redrive_policies (digest, document) VALUES (:policy, :document)
ON CONFLICT (digest) DO UPDATE SET retired_at = NULL WHERE retired_at IS NOT NULL
