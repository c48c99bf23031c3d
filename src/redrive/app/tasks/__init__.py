"""Tasks and their jobs: the declared function, the enqueue, the handle of a job, the wait for its end, catch tasks."""
