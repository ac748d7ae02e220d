"""The reference evaluator: what a plan means, record by record in plain Python; oracle and fallback."""
