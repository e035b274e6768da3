"""Why a node has its P(rare): what it would be without a label, an edge, or what its features deviate by."""

from calirare.explain.context import ExplanationContext
from calirare.explain.explainable_model import ExplainableModel, Shares, difference, log_odds_of, two_columns
from calirare.explain.explainer import Explainer
from calirare.explain.explanation import EdgeEffect, Explanation, Explanations, FeatureShare, LabelEffect, written
from calirare.explain.label_acquisition import label_values, taken_together
from calirare.explain.naming import Nodes, nodes_named
from calirare.explain.out_of_fold import OutOfFold
from calirare.explain.picture import draw
from calirare.explain.registry import explainable
from calirare.explain.text import points, text_of
from calirare.explain.words import Field, Usual, day_in_words, field_of, time_in_words
