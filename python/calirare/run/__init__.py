"""A run: its settings, outcome, folder, report and predictions."""

from calirare.run.choice import Choice, Row
from calirare.run.classes import ClassesOutcome
from calirare.run.deciding import Decided, Deciding, check_decision, decided
from calirare.run.folder import SavedRun, load, write_json
from calirare.run.outcome import Outcome
from calirare.run.probabilities import Probabilities
from calirare.run.schema import Option, method_options, options_of, words_for
from calirare.run.scoring import Scorer
from calirare.run.settings import MAX_SEED, Calibration, Data, Intervals, Settings, Training, read_yaml
from calirare.run.tables import COLUMNS, predictions, write_predictions
from calirare.run.unused import ignored_settings

__all__ = [
    "COLUMNS",
    "MAX_SEED",
    "Calibration",
    "Choice",
    "ClassesOutcome",
    "Data",
    "Decided",
    "Deciding",
    "Intervals",
    "Option",
    "Outcome",
    "Probabilities",
    "Row",
    "SavedRun",
    "Scorer",
    "Settings",
    "Training",
    "check_decision",
    "decided",
    "ignored_settings",
    "load",
    "method_options",
    "options_of",
    "predictions",
    "read_yaml",
    "words_for",
    "write_json",
    "write_predictions",
]
