"""Celery tasks under a policy: the queues, brokers and workers stay, and the policy decides about retries.

::

    app = Celery("shop", broker="amqp://...", task_cls=PolicyTask)


    @app.task(retry="5 1s 10m catch refund")
    def charge(invoice): ...


    @app.task
    def refund(request: CatchRequest): ...

Nothing is decided here: an attempt is classified, `redrive.policy.Policy.decide` is asked, and the message of the next
attempt carries what the policy keeps (`redrive.policy.carried`). May import: `redrive.runtime` and below, Celery (the
extra ``celery``). Must never: keep state outside of the message.
"""

from redrive.contrib import extra

with extra("celery"):
    from redrive.contrib.celery.task import PolicyTask
    from redrive.contrib.other_engines import CatchRequest

__all__ = ["CatchRequest", "PolicyTask"]
