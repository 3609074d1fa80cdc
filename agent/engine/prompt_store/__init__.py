"""Prompts that were computed before, on disk by key; and what says that they fit a model."""
