"""What the integrations of HTTP clients share: the reading of their errors, and the policy of a request.

Each client's integration has a `redrive.contrib.http.classify.Library`, which knows the errors of that client. May
import: `redrive.retrying` and below. Must never import a client.
"""
