"""Algorithm 1 of the paper: jackknife intervals, uncertainty and individual calibration error."""

from calirare.intervals.algorithm1 import jackknife
from calirare.intervals.conformal import class_sets, jackknife_plus
from calirare.intervals.ends import Known, LogitMap
from calirare.intervals.result import JackknifeResult
from calirare.intervals.streaming import Streaming, streams
from calirare.intervals.uncertainty import UNCERTAINTIES, UncertaintyName

__all__ = [
    "UNCERTAINTIES",
    "JackknifeResult",
    "Known",
    "LogitMap",
    "Streaming",
    "UncertaintyName",
    "class_sets",
    "jackknife",
    "jackknife_plus",
    "streams",
]
