"""The OpenAI API over the neutral request and the neutral stream of events.

The rooms here are the paths; what they share is in this one: errors, and fields without effect.
"""
