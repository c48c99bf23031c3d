-- Return whether a signal or an emitted value was not offered to its runs yet.
-- Called by is_pending.
-- transaction: none
SELECT EXISTS (SELECT FROM redrive_signals WHERE pending) OR EXISTS (SELECT FROM redrive_emits WHERE pending)
