"""Chat templates: choosing a model's template, and rendering it in a sandbox with limits.

May import: the engine's `loaded_model`. Comes in: `generation`.
"""
