"""A run: its settings, outcome, folder, report and predictions."""

from calirare.run.folder import SavedRun, load, write_json
from calirare.run.outcome import Outcome
from calirare.run.scoring import Scorer
from calirare.run.settings import Calibration, Data, Intervals, Settings, Training, read_yaml
from calirare.run.tables import COLUMNS, predictions, write_predictions
from calirare.run.unused import ignored_settings

__all__ = [
    "COLUMNS",
    "Calibration",
    "Data",
    "Intervals",
    "Outcome",
    "SavedRun",
    "Scorer",
    "Settings",
    "Training",
    "ignored_settings",
    "load",
    "predictions",
    "read_yaml",
    "write_json",
    "write_predictions",
]
