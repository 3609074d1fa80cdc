"""The handling of each field of OpenAI's, Anthropic's and Ollama's requests.

A field is obeyed, ignored and reported, or refused by name. Some fields are ignored because users
often cannot make their clients omit them. This folder has the type of the tables, and the pass
over a body that applies a table. The tables themselves are in each API's folder.
"""
