"""Operations of topics: feeders, subscriptions, retention, and restored databases. PURE.

`redrive.stores.operations.events` publishes; `redrive.engine.topics` explains cursors and windows.
"""
