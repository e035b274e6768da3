"""Pictures of calibration, detection and intervals."""

from calirare.plots.detection import budget_diagram, precision_recall_diagram
from calirare.plots.neighbourhood import Spot, neighbourhood_diagram
from calirare.plots.rare_class import rare_reliability_diagram
from calirare.plots.reliability import Panel, class_panels, confidence_panel, reliability_diagram
