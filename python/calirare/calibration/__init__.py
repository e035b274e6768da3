"""Calibrators: fitted on logits and labels, logits in, probabilities out."""

from calirare.calibration.affine import AffineCalibrator, JackknifeCalibrator, platt_scaling, temperature_scaling
from calirare.calibration.base import TARGETS, Calibrator, Target, target_weights
from calirare.calibration.budget import BudgetCurve, budget_curve
from calirare.calibration.count_drift import next_period, period_spans
from calirare.calibration.cross_fitted import cross_fitted_probabilities
from calirare.calibration.label_shift import Prevalence, prevalence_by_map
from calirare.calibration.minimisers import newton_minimum
from calirare.calibration.mondrian import label_sets
from calirare.calibration.positive_only import (
    SCAR,
    PositiveOnlyCalibrator,
    check_known,
    rare_among_unlabelled,
    unlabelled_share,
)
from calirare.calibration.posterior import APART, COVERAGE, ExpectedCount, are_apart, count_draws, expected_count
from calirare.calibration.prevalence import prevalence_ends, with_prevalence
from calirare.calibration.prior_platt import FORM_SD, SINGLE_SLOPE, SINGLE_SLOPE_SD, PriorPlattCalibrator
from calirare.calibration.probability_scatter import NodeProbabilities, node_probabilities
from calirare.calibration.registry import CALIBRATORS, KINDS, load_calibrator, make_calibrator, save_calibrator
from calirare.calibration.sampling import CalibrateOn, Sampling, effective_shares, representative_labels
from calirare.calibration.selection_bias import Exchangeable, LabelClustering, UnseenValues, exchangeable, unseen_values
from calirare.calibration.target_leakage import find_leakage
