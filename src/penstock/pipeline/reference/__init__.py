"""The reference engine: what a plan means, in plain Python; the oracle and the slow path."""
