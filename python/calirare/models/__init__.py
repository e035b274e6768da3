"""Detectors and how each is trained: graph convolution, networks and trees on columns, label propagation, ensembles."""

from calirare.models.column_fit import ColumnDetector, ColumnFit, LearnedColumns
from calirare.models.columns import HopColumns, hop_names
from calirare.models.convergence import Adam, Convergence, converge, minimise
from calirare.models.crossfit import (
    Loss,
    class_weights,
    cross_entropy,
    cross_fitted_logits,
    fold_of,
    folds_for,
    loo_loss,
)
from calirare.models.fitted import (
    Detector,
    Fitted,
    FittedNetwork,
    FoldFitted,
    Progress,
    State,
    Wrapper,
    evaluating,
)
from calirare.models.folded import FoldedNetwork, fold_converged, fold_network, held_out_fold, train_folds
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit, of_network, step_work, unflatten
from calirare.models.gcn_training import GcnTraining, fit
from calirare.models.given import Given, GivenFit
from calirare.models.graph_delta import NewEdges
from calirare.models.known_nodes import KnownNodes
from calirare.models.label_propagation import (
    STEPS,
    LabelPropagation,
    LabelPropagationFit,
    inverse_root,
    propagation_step,
    root_of,
)
from calirare.models.mixture import (
    SMALLEST_P,
    Member,
    Mixture,
    calibrated_probabilities,
    mixture_of,
    pooled_probabilities,
    stacking_weights,
)
from calirare.models.mlp import MlpFit, MlpTraining, perceptron
from calirare.models.module_fit import (
    ClassWeight,
    ModuleFit,
    NodeLabels,
    adam_moments,
    fit_of,
    fitted_of,
    node_labels,
    pyg_inputs,
)
from calirare.models.neighbours import (
    NeighbourPool,
    aggregate_neighbours,
    evidence,
    log_shares,
    own_evidence,
    pool_weights,
    pooled,
)
from calirare.models.new_nodes import KnownGraph
from calirare.models.node_matching import NameMatches, label_propagation_by_names, match_nodes, names_are_others
from calirare.models.passes import Mapped, Passes, read_ahead
from calirare.models.registry import DETECTORS, Entry, model_names, networks, trained_here
from calirare.models.streams import OnDisk, Pooled, Streams, logits_on_disk, streams_of
from calirare.models.tree_ensembles import PSEUDO as TREE_PSEUDO
from calirare.models.tree_ensembles import SHRINKAGE as TREE_SHRINKAGE
from calirare.models.tree_ensembles import Ensemble
from calirare.models.trees import TreesFit, TreesTraining
