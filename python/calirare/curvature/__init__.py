"""Derivatives of a network at its labelled nodes: Jacobian, kernel, Hessian."""

from calirare.curvature.gcn import (
    GcnLinearisation,
    closed_form,
    difference_seeds,
    linearise,
    of_tape,
    pull_back,
)
from calirare.curvature.ggn import (
    GgnInverse,
    OneLayerHat,
    OneLayerPreconditioner,
    SpectralHat,
    block_of_labels,
    distinct_columns,
    dual_system,
    gauss_newton,
    is_one_layer,
    positive_inverse,
    symmetric_system,
)
from calirare.curvature.gram_form import gram, inputs_gram
from calirare.curvature.linearisation import (
    Kernels,
    Linearisation,
    logit_differences,
    with_class_zero,
)
from calirare.curvature.module import HOPS, ModuleLinearisation, NodeField, around
