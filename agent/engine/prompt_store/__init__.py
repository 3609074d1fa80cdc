"""Computed prompts on disk: stored by key, and the disk tier of the prefix cache."""
