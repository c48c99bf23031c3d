"""What users write against.

Answers: how does a function become a task, a call a job? May import: `redrive.stores`, `redrive.engine`,
`redrive.policy` and below. Must never: run a handler, or decide what a failure means.

* `app`: the App: one database, its tasks, and the questions one asks of both;
* `registry`: the tasks of an app, and whether they fit together;
* `task`: a registered function and its ``enqueue`` forms;
* `job`: a handle on one job;
* `payload`: arguments to JSON and back, checked against the annotations;
* `catch`: what a catch task receives, and the rules it must obey;
* `context`: what a handler may know about its attempt.
"""
