"""What the model is given of a Messages API request: messages, blocks, tools.

Lives here: their types, and their conversion to neutral messages and tools.
"""
