"""The parts of `demo.train`, with one idea in each file. Only these files need PyTorch."""
