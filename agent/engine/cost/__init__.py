"""What steps cost, learnt from the steps that were run.

May import: nothing. Comes in: `scheduling` and `speculation`.
"""
