"""CaliRare's compiled operators: propagation, per-node gradients, inverse-Hessian products, jackknife intervals."""

from calirare_ext._version import __version__
from calirare_ext.as_csr import SparseMatrix, as_csr
from calirare_ext.build_info import BuildInfo, build_info
from calirare_ext.confidence_bins import confidence_bins
from calirare_ext.csr import Csr
from calirare_ext.eice_term import PATHS, GradientPath, eice_term
from calirare_ext.field_of_graph import receptive_field
from calirare_ext.first_layer import times, turned_times
from calirare_ext.gcn_norm import gcn_norm, with_loops
from calirare_ext.inputs import (
    DENSE_ABOVE,
    Factored,
    Inputs,
    as_dense,
    as_matrix,
    multiply_adds,
    product_of,
    rows_of_inputs,
)
from calirare_ext.inverse_hvp import (
    SolverResult,
    SolverStatus,
    block_cg,
    hessian_product,
    move_logits,
    solve_inverse_hvp,
)
from calirare_ext.jackknife_interval import JackknifeInterval, jackknife_interval
from calirare_ext.layouts import Layout, prepare
from calirare_ext.loo_messages import LooDirections, loo_messages
from calirare_ext.masked_gram import in_panels, masked_gram
from calirare_ext.message_interval import message_interval
from calirare_ext.neighbour_means import neighbour_means
from calirare_ext.network_loss import (
    NetworkField,
    adam_step_,
    dropout_factors,
    network_field,
    network_logits,
    network_loss,
)
from calirare_ext.node_gradients import LayerFactors, NodeGradients, node_gradients
from calirare_ext.propagate import propagate
from calirare_ext.receptive_field import (
    ReceptiveField,
    cut,
    field_of_propagated,
    part_of_field,
)
from calirare_ext.row_sums import row_parts, row_sums
from calirare_ext.tape import GcnTape, gcn_forward, record

__all__ = [
    "DENSE_ABOVE",
    "PATHS",
    "BuildInfo",
    "Csr",
    "Factored",
    "GcnTape",
    "GradientPath",
    "Inputs",
    "JackknifeInterval",
    "LayerFactors",
    "Layout",
    "LooDirections",
    "NetworkField",
    "NodeGradients",
    "ReceptiveField",
    "SolverResult",
    "SolverStatus",
    "SparseMatrix",
    "__version__",
    "adam_step_",
    "as_csr",
    "as_dense",
    "as_matrix",
    "block_cg",
    "build_info",
    "confidence_bins",
    "cut",
    "dropout_factors",
    "eice_term",
    "field_of_propagated",
    "gcn_forward",
    "gcn_norm",
    "hessian_product",
    "in_panels",
    "jackknife_interval",
    "loo_messages",
    "masked_gram",
    "message_interval",
    "move_logits",
    "multiply_adds",
    "neighbour_means",
    "network_field",
    "network_logits",
    "network_loss",
    "node_gradients",
    "part_of_field",
    "prepare",
    "product_of",
    "propagate",
    "receptive_field",
    "record",
    "row_parts",
    "row_sums",
    "rows_of_inputs",
    "solve_inverse_hvp",
    "times",
    "turned_times",
    "with_loops",
]
