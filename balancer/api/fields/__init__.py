"""The handling of each field of OpenAI's, Anthropic's and Ollama's requests.

A field is obeyed, ignored and reported, or refused by name, since users often cannot make these
clients leave a field out. Lives here: the tables' type, and the pass over a body that applies one.
The tables themselves are next to each API's requests.
"""
