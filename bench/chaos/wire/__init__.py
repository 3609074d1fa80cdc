"""The network of a run: hosts with addresses of their own, and the weather between them."""
