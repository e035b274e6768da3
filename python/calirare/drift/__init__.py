"""Drift: how a graph that is scored differs from the one a run was trained on, beyond what chance makes of it."""

from calirare.drift.findings import VERDICTS, Drift, Finding, Verdict
from calirare.drift.neighbourhoods import design_effect, patches, some_of
from calirare.drift.noise import Noise
from calirare.drift.reference import Reference
