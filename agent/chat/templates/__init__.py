"""Chat templates: which one a model has, and rendering it in a sandbox with bounds.

May import: the engine's `loaded_model`. Comes in: `generation`.
"""
