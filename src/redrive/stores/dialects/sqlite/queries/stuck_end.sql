-- Ends the sessions of processes that stopped in the middle of a statement, where the database has sessions.
-- Called by the rescuer. SQLite has none: a process that is stopped while it writes keeps its file locked.
SELECT NULL WHERE :silent_for IS NULL
