"""A tiny model that was trained here, its corpus, and the programs that make and check it."""
