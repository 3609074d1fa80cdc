"""GGUF files: what their headers say, what a model in one takes, and where that fits.

Nothing here fetches, loads or checks a file; what does so lies above.
"""
