-- End the sessions of processes that stopped in the middle of a statement of redrive, and so keep rows locked.
-- Called by end_stuck. To the server such a session is active, so its timeout for idle transactions does not end it.
SELECT NULL WHERE :silent_for IS NULL
