"""What steps cost, learnt from the steps that were run."""
