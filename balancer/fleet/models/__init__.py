"""The models of the fleet: which there are, what each can do, and the longest prompts that fit.

May import: the words of `fleet`. Comes in: `fleet.core`.
"""
