"""Algorithm 1 of the paper: jackknife intervals, uncertainty and individual calibration error."""
