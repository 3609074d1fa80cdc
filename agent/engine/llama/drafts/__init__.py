"""A second, small model that guesses what the served one will say."""
