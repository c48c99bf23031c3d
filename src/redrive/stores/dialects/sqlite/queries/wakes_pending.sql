-- Return whether a signal or an emitted value was not offered to its runs yet.
-- Called by is_pending.
SELECT EXISTS (SELECT 1 FROM redrive_signals WHERE pending) OR EXISTS (SELECT 1 FROM redrive_emits WHERE pending)
