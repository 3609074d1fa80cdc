"""Drafts of what a sequence says next, and how many tokens of them pay.

May import: `cost`. Comes in: `scheduling`.
"""
