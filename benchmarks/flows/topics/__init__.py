"""The measured ways to deliver an event to several subscriptions, each behind `benchmarks.subjects.Subject`.

A job of a subject is the delivery of one event to one subscription; with ten subscriptions a publish makes ten of them.
The handlers do nothing, and one process has them all.
"""
