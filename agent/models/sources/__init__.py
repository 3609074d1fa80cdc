"""Where model files come from: the Hugging Face hub, the web, a path on this host.

Lives here: what a source means, and which files it takes. All of it blocks; it
runs in the fetching process.
"""
