"""A run written as one ONNX model, which scores arrays where there is neither Python nor torch."""

from calirare.export.onnx.model import onnx_of

__all__ = ["onnx_of"]
