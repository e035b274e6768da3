"""Why a node has its P(rare): what it would be without a label, an edge, or what its features deviate by."""

from calirare.explain.class_explainer import ClassExplainer
from calirare.explain.detectors import logit_voice_of, voice_of
from calirare.explain.explainer import Explainer
from calirare.explain.explanation import (
    EdgeEffect,
    Explanation,
    Explanations,
    FeatureShare,
    GroupEffect,
    LabelEffect,
    Needed,
    written,
)
from calirare.explain.naming import Nodes, nodes_named
from calirare.explain.picture import draw, picture_name
from calirare.explain.subject import Group, Subject
from calirare.explain.teaching import LabelValues, label_values, taken_together
from calirare.explain.text import tables_of, text_of
from calirare.explain.unlearnt import Unlearnt
from calirare.explain.voice import Shares, Voice, difference, log_odds_of, probability

__all__ = [
    "ClassExplainer",
    "EdgeEffect",
    "Explainer",
    "Explanation",
    "Explanations",
    "FeatureShare",
    "Group",
    "GroupEffect",
    "LabelEffect",
    "LabelValues",
    "Needed",
    "Nodes",
    "Shares",
    "Subject",
    "Unlearnt",
    "Voice",
    "difference",
    "draw",
    "label_values",
    "log_odds_of",
    "logit_voice_of",
    "nodes_named",
    "picture_name",
    "probability",
    "tables_of",
    "taken_together",
    "text_of",
    "voice_of",
    "written",
]
