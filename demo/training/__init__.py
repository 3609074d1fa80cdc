"""The parts of `demo.train`, one idea a file; they need PyTorch, which nothing else does."""
