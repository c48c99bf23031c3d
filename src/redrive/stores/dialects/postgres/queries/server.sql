-- Return facts about the database, each with its name.
-- Called by examine.
SELECT 'version' AS name, current_setting('server_version') AS value
UNION ALL
SELECT 'version_number', current_setting('server_version_num')
UNION ALL
SELECT 'synchronous_commit', current_setting('synchronous_commit')
UNION ALL
SELECT 'read_only', current_setting('transaction_read_only')
