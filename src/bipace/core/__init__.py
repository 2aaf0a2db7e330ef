"""The estimator core: numpy only, pure functions, one direction."""
