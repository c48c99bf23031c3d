-- On the primary: each commit waits until a standby has it on its disk. While no standby streams, every commit waits, until
-- asynchronous.sql is run. Patroni does both by itself.
ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)';
SELECT pg_reload_conf();
