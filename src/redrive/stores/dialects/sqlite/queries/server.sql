-- Return facts about the database, each with its name.
-- Called by examine.
SELECT 'version' AS name, sqlite_version() AS value
UNION ALL
SELECT 'journal_mode', (SELECT journal_mode FROM pragma_journal_mode)
UNION ALL
SELECT 'synchronous', (
    SELECT CASE synchronous WHEN 0 THEN 'off' WHEN 1 THEN 'normal' WHEN 2 THEN 'full' ELSE 'extra' END
    FROM pragma_synchronous
)
