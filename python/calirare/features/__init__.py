"""What raw features become before a model sees them: fitted on one graph, stored with the run, applied to any."""

from calirare.features.feature_map import FeatureMap, How
from calirare.features.fitting import Impute
from calirare.features.labelled_nodes import hashed_names, places_by_name
from calirare.features.numeric import together
from calirare.features.raw_table import Stored, columns_of
