"""The cost of steps, learnt from the steps that were run."""
