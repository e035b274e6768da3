"""A run: its settings, folder, report and predictions."""
