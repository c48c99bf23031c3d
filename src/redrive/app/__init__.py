"""The interface for application code: tasks, jobs, queues, crons and refreshes of an App.

May import: `redrive.stores`, `redrive.engine`, `redrive.policy` and below. Must never: run the handler of a job, which
is the worker's task, or decide what a failure means, which is the engine's.

`app` has the App; `registry` its tasks; `task`, `enqueue`, `cron` and `refresh` the kinds of tasks;
`job` and `queues` the handles; `jobs`, `schedules`, `refreshes` and `database` the other parts of an App; `context` and
`catch` the objects that handlers receive; `payload` the JSON of arguments and results.
"""
