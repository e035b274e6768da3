"""Decisions: from honest probabilities to alerts, with what they should hit, miss and cost."""

from calirare.calibration.decisions.decision import Decision, decide
from calirare.calibration.decisions.guarantees import Labelled, fewest_rare, precision_threshold, recall_threshold
from calirare.calibration.decisions.rules import (
    NONE,
    RULES,
    Balanced,
    Budget,
    Capped,
    Cost,
    Precision,
    Recall,
    Rule,
    Tie,
    make_rule,
)
