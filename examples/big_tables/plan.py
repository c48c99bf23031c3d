"""The policy of a table: the times of its refreshes, the retries, and the notification after the last failure."""

from __future__ import annotations

from redrive.schedule import RefreshPolicy

POLICY = RefreshPolicy.parse("""
    1. Refresh BigTable twice per day at 6 AM and 4 PM
    2. Allow 1 hour to complete
    3. Retry policy:
       - On the first failure, retry immediately.
       - On the second failure, retry after 1 minute.
       - On the third failure, retry after 5 minutes.
       - On the fourth failure, retry after 15 minutes.
       - On the fifth failure, retry after 30 minutes.
       - On the sixth failure, retry after 1 hour.
    4. Give up after the final unsuccessful retry:
       - Disable auto-refresh.
       - Email the customer that the BigTable refresh has been disabled.
""")
