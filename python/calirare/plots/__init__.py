"""Pictures of calibration and intervals."""

from calirare.plots.intervals import interval_diagram
from calirare.plots.panels import Panel, class_panels, confidence_panel
from calirare.plots.reliability import reliability_diagram

__all__ = ["Panel", "class_panels", "confidence_panel", "interval_diagram", "reliability_diagram"]
