"""An agent's reports: its model, its engine's figures, the last lines of its log.

They are parts of `shared.messages`, and can be imported without the protocol.
"""
