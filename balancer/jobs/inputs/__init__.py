"""Reading the input of a batch: once as a whole, to check it and to cut it, and then by chunks."""
