"""Tool calls in a model's text: a reader for each notation, the functions that a request
offers, and whether a call's arguments fit their schema.

May import: nothing else of the house but `shared`. Comes in: `families`, `parsing`, `grammar`.
"""
