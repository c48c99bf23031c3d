"""What the shop does in the background."""

from __future__ import annotations

from redrive.contrib.django import JobContext, retries
from shop import provider
from shop.models import Order, Payment

try:
    from django.tasks import task
except ModuleNotFoundError:  # before Django 6.0
    from django_tasks import task


@task(queue_name="payments", takes_context=True)
@retries("8 200ms 1m", timeout="2m")
def charge(context: JobContext, order_id: int) -> str:
    """Take the money for an order: the provider may be asked twice, and takes it once; so do we."""
    order = Order.objects.get(pk=order_id)
    provider.charge(order.cents, key=context.job.idempotency_key)
    with context.transaction():
        Payment.objects.create(order=order, cents=order.cents)
        Order.objects.filter(pk=order_id).update(paid=True)
        context.job.set_result(f"order {order_id} is paid for")
    return f"order {order_id} is paid for"
