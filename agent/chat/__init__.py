"""From a request to tokens: the model's own template, tokenising, the sampling it asked for."""
