-- Return the signals of these runs in their order, or the unread ones; without those of the ends of child runs.
-- Called by claim and arrived for the unread ones, and by timeline.
SELECT id, run_id, name, key, payload, at, path FROM redrive_signals
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND (path IS NULL OR NOT :unread)
    AND name <> :child
ORDER BY id
