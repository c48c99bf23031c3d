"""Pictures of policies: each retry, its wait and its time, as text, SVG, Mermaid and JSON. PURE.

May import: `redrive.policy`, `redrive.schedule` and `redrive.drawing`. Must never: read a clock, do I/O, or compute a
delay by itself; `rows` calls `redrive.policy.Policy.decide`, so the drawing is the behaviour.

`read` reads a policy from a text, `kinds` finds the failures that it treats differently, `rows` computes a
`PolicyPlan`, and `text`, `svg`, `mermaid` and `plain` draw it; `gantt` does all of this for refresh policies.
``redrive plan`` and the dashboard show them.
"""
