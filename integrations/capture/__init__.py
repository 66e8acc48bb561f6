"""Real workloads of a function, from the calls that a repository's own command makes."""
