"""The interface for application code: tasks, jobs, queues, crons and refreshes of an App.

May import: `redrive.stores`, `redrive.engine`, `redrive.policy` and below. Must never: run the handler of a job, which
is the worker's task, or decide what a failure means, which is the engine's.

`app` has the App, and `registry` what is declared on it through `declarations` and `decorators`. Each subject has a
folder: `tasks`, `flows`, `machines`, `topics`, `recurring`; `attempts` has the objects that handlers receive,
`operators` those for people who operate an App. `payload` is the JSON of arguments and results, `protocol` what the
folders know of the App.
"""
