"""The calibration record: many classes on the protocols of GETS and GATS, every map beside published rows."""

from calirare_lab.studies.record.cells import DEFAULT, OURS, TRACKS, run_cell
from calirare_lab.studies.record.data import load
from calirare_lab.studies.record.measures import MEASURES
from calirare_lab.studies.record.protocol import (
    CHOSEN,
    GATS_PROTOCOL,
    GETS_PROTOCOL,
    NETWORKS,
    PROTOCOLS,
    RECORD,
    RULES_PROTOCOL,
    Cell,
    Protocol,
)
from calirare_lab.studies.record.runner import read, run, summary

__all__ = [
    "CHOSEN",
    "DEFAULT",
    "GATS_PROTOCOL",
    "GETS_PROTOCOL",
    "MEASURES",
    "NETWORKS",
    "OURS",
    "PROTOCOLS",
    "RECORD",
    "RULES_PROTOCOL",
    "TRACKS",
    "Cell",
    "Protocol",
    "load",
    "read",
    "run",
    "run_cell",
    "summary",
]
