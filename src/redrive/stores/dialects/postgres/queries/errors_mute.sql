-- Mute an error group until an instant or its next failure, or take that back; return it if it exists.
-- Called by mute and unmute.
UPDATE redrive_errors
SET muted_at = :muted_at::timestamptz, muted_until = :muted_until::timestamptz
WHERE fingerprint = :fingerprint::text
RETURNING fingerprint
