"""How long does it take, and may that be believed? Rounds, clocks, statistics, verdicts."""
