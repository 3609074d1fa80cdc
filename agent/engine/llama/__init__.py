"""The only place that knows llama.cpp: its low-level calls, one concern a file."""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "3000")
