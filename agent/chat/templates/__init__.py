"""Chat templates: choosing a model's template, and rendering it in a sandbox with limits."""
