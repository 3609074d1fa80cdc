"""Media through llama.cpp's mtmd: a projector converts pictures to rows of embeddings.

`projector` reads and encodes; `encoded` caches the rows and makes batches of them.
"""
