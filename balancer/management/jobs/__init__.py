"""Everybody's batches, for operators: how far they are, and to cancel them."""
