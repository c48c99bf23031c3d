"""Speed, measured side by side: redrive, its peers, and the raw limit.

``make bench`` runs everything; ``python -m benchmarks.inprocess`` and ``python -m benchmarks.queue`` run a part. Read
the ratios, not the absolute figures: machines differ, and a shared one differs from minute to minute. Therefore all
subjects run in one go, in turns, and the figures are medians over the rounds.
"""
