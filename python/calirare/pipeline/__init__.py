"""The main job: train, leave every label out, calibrate, make intervals. Stages are functions of values."""

from calirare.pipeline.changes import Updated
from calirare.pipeline.data import Report
from calirare.pipeline.retrain import retrained
from calirare.pipeline.stages import train
from calirare.pipeline.updating import update

__all__ = [
    "Report",
    "Updated",
    "retrained",
    "train",
    "update",
]
