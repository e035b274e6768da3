"""What raw features become before a model sees them: fitted on one graph, stored with the run, applied to any."""

from calirare.features.categorical import OneHot, TargetEncoded
from calirare.features.feature_map import FeatureMap, How
from calirare.features.fitting import Impute, Missing
from calirare.features.labelled_nodes import hashed_names
from calirare.features.numeric import PERIODS, Cyclic, Kept, Logged, Ranked, Standardized, ties, together
from calirare.features.raw_table import ColumnMap, RawTable
from calirare.features.whole import AsIs, RowSums, Svd, TfIdf, WholeMap

__all__ = [
    "PERIODS",
    "AsIs",
    "ColumnMap",
    "Cyclic",
    "FeatureMap",
    "How",
    "Impute",
    "Kept",
    "Logged",
    "Missing",
    "OneHot",
    "Ranked",
    "RawTable",
    "RowSums",
    "Standardized",
    "Svd",
    "TargetEncoded",
    "TfIdf",
    "WholeMap",
    "hashed_names",
    "ties",
    "together",
]
