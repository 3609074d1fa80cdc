"""The only package that calls llama.cpp, through its low-level API; one concern per file."""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "3000")
