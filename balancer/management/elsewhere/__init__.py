"""What other balancers over the same store have, and what this one tells them of itself.

May import: the fleet's runtime, what peers ask one another, and the management API's answers.
Comes in: the daemon, and the management port.
"""
