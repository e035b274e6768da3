"""What raw features become before a model sees them: fitted on one graph, stored with the run, applied to any."""

from calirare.features.feature_map import FeatureMap, How
from calirare.features.fitting import Impute

__all__ = ["FeatureMap", "How", "Impute"]
