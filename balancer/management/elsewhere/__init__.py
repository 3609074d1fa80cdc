"""What other balancers over the same store have, and what this one tells them of itself."""
