"""Methods the paper compares with: losses, mixup, node-wise temperatures, the authors' own recipe."""

from calirare.baselines.cagcn import CaGCN
from calirare.baselines.dropout_reading import dropout_probabilities, dropout_probabilities_of_module
from calirare.baselines.early_stopping import train_cagcn_base
from calirare.baselines.gats import GATS
from calirare.baselines.losses import class_weighted_smoothing_loss, focal_loss, label_smoothing_loss, train_with_loss
from calirare.baselines.mixup import train_mixup
from calirare.baselines.official import (
    OFFICIAL_TRAINING,
    OfficialSettings,
    official_probabilities,
    read_official,
    train_official,
)

__all__ = [
    "GATS",
    "OFFICIAL_TRAINING",
    "CaGCN",
    "OfficialSettings",
    "class_weighted_smoothing_loss",
    "dropout_probabilities",
    "dropout_probabilities_of_module",
    "focal_loss",
    "label_smoothing_loss",
    "official_probabilities",
    "read_official",
    "train_cagcn_base",
    "train_mixup",
    "train_official",
    "train_with_loss",
]
