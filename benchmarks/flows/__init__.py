"""Speed of workflows, machines and topics beside their peers, the raw limit, and plain jobs of redrive.

``python -m benchmarks.flows`` runs all parts, see `benchmarks.flows.parts`. Read the ratios, not the absolute figures.
"""
