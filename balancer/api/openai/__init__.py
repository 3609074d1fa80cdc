"""The OpenAI API over the neutral request and the neutral stream of events.

Each group of paths has a folder. The files here have the parts that all paths share: errors, and
fields without effect.
"""
