"""Chat templates: choose a model's template, and render it in a sandbox with limits."""
