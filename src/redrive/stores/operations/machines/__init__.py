"""State machines: `send` and `turns` start transitions, `finish` ends them, `manage` is for operators. PURE.

An instance is locked before its event is validated, and the lock is held until the transaction ends. `rows` reads and
writes the rows.
"""
