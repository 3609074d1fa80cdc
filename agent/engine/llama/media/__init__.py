"""Media through llama.cpp's mtmd: a projector makes rows of embeddings of pictures.

`projector` reads and encodes; `encoded` caches, and makes batches of the rows.
"""
