"""Settings declared once: the declaration, the sources that fill it, the help that explains it."""
