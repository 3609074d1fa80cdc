"""The OpenAI API over the neutral request and the neutral stream of events.

Each group of paths has a folder. The files here have what they share: errors, and fields without
effect.
"""
