"""Algorithm 2 of the paper: training with the individual calibration error."""
