"""An agent's reports: its model, its engine's figures, the last lines of its log.

The messages of `shared.messages` contain these types. This package does not import the messages.
"""
