"""How good policies are, side by side: the ten scenarios of `redrive.simulate`, and whether the targets are met.

Unlike the other benchmarks these read no clock: the figures are the same on every machine. ``python -m
benchmarks.quality`` prints them, ``--svg DIR`` draws them, ``--page FILE`` writes the tables into the page of the
documentation. Where tenacity and stamina are installed, their own objects are asked whether the formulas that stand for
them are right.
"""
