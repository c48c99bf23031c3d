-- Return the first unread signals of runs, of one name if it is given; without those of the ends of child runs.
-- Called by claim and news, and by unread for one name.
-- many: rows
SELECT id, run_id, name, key, payload, at, path FROM redrive_signals
WHERE run_id = :run_id AND path IS NULL AND name <> :child AND (:name IS NULL OR name = :name)
ORDER BY id
LIMIT :count
