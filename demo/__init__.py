"""A tiny model trained for this project, its corpus, and programs that make and check both."""
