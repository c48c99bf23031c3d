"""Transitions of state machines, behind `benchmarks.subjects.Subject`: a job of the subject is one transition."""
