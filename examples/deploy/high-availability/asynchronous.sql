-- On a primary whose standby is away, and on a standby before it is promoted without another one.
ALTER SYSTEM SET synchronous_standby_names = '';
SELECT pg_reload_conf();
