"""A run written for where the data live: one SQL query, or one ONNX model."""

from calirare.export.onnx import onnx_of
from calirare.export.sql import DIALECTS, Dialect, Names, notes_on, query_of
from calirare.export.unlabelled import without_labels

__all__ = ["DIALECTS", "Dialect", "Names", "notes_on", "onnx_of", "query_of", "without_labels"]
