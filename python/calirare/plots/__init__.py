"""Pictures of calibration and intervals."""
