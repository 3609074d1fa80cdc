"""The events of one answer, rendered and written where they arrive.

May import: `shared`. Comes in: `transport`, and the APIs for the frames of their tokens.
"""
