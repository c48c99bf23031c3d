-- Return facts about the database, each with its name.
-- Called by examine.
SELECT 'version' AS name, current_setting('server_version') AS value
UNION ALL
SELECT 'version_number', current_setting('server_version_num')
UNION ALL
SELECT 'synchronous_commit', current_setting('synchronous_commit')
UNION ALL
-- The setting of the transaction does not count: this query runs in one that only reads.
SELECT
    'read_only',
    CASE WHEN pg_is_in_recovery() THEN 'on' ELSE current_setting('default_transaction_read_only') END
