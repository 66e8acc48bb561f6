"""Is a candidate right? References at work, derived inputs, budgets, contracts, precision."""
