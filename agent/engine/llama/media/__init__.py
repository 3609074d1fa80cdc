"""Media through llama.cpp's mtmd: a projector makes rows of embeddings of pictures.

`projector` reads and encodes, `encoded` caches, `media_batch` says where the rows lie.
"""
