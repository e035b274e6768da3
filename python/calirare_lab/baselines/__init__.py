"""Methods the paper compares with: GAT and GIN, losses, mixup, node-wise temperatures, the authors' own recipe."""

from calirare_lab.baselines.cagcn import CaGCN
from calirare_lab.baselines.comparators import PostHoc, post_hoc
from calirare_lab.baselines.dropout_reading import dropout_probabilities, dropout_probabilities_of_module
from calirare_lab.baselines.early_stopping import LossAndAccuracy, train_cagcn_base, train_stopped
from calirare_lab.baselines.gats import GATS
from calirare_lab.baselines.losses import (
    class_weighted_smoothing_loss,
    focal_loss,
    label_smoothing_loss,
    train_with_loss,
)
from calirare_lab.baselines.mixup import train_mixup
from calirare_lab.baselines.networks import GAT, GatTraining, GinTraining, NetworkTraining
from calirare_lab.baselines.official import (
    OFFICIAL_TRAINING,
    OfficialSettings,
    official_probabilities,
    read_official,
    train_official,
)
from calirare_lab.baselines.own_logits import TemperatureScaling, VectorScaling

__all__ = [
    "GAT",
    "GATS",
    "OFFICIAL_TRAINING",
    "CaGCN",
    "GatTraining",
    "GinTraining",
    "LossAndAccuracy",
    "NetworkTraining",
    "OfficialSettings",
    "PostHoc",
    "TemperatureScaling",
    "VectorScaling",
    "class_weighted_smoothing_loss",
    "dropout_probabilities",
    "dropout_probabilities_of_module",
    "focal_loss",
    "label_smoothing_loss",
    "official_probabilities",
    "post_hoc",
    "read_official",
    "train_cagcn_base",
    "train_mixup",
    "train_official",
    "train_stopped",
    "train_with_loss",
]
