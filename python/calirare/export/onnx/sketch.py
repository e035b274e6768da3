"""An ONNX graph that grows operation by operation, written as arithmetic.

Operators are those of opset 18 (onnx 1.13, onnxruntime 1.14 and later): since then a scatter may add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError

OPSET, IR = 18, 8  # the pair of one release
MOST_BYTES = 2**31 - 2**20  # of a model: protobuf writes no more
SINGLE, DOUBLE, WHOLE, TRUTH = (np.dtype(t) for t in (np.float32, np.float64, np.int64, np.bool_))


@dataclass(frozen=True, eq=False)
class Value:
    """What an operation makes.

    Attributes:
        sketch: the graph it belongs to.
        name: in the graph.
        dtype: of its numbers.
    """

    sketch: Sketch
    name: str
    dtype: np.dtype[Any]

    def __add__(self, other: Number) -> Value:
        return self.sketch.op("Add", self, other)

    def __sub__(self, other: Number) -> Value:
        return self.sketch.op("Sub", self, other)

    def __rsub__(self, other: float) -> Value:
        return self.sketch.op("Sub", other, self)

    def __mul__(self, other: Number) -> Value:
        return self.sketch.op("Mul", self, other)

    def __truediv__(self, other: Number) -> Value:
        return self.sketch.op("Div", self, other)

    def __rtruediv__(self, other: float) -> Value:
        return self.sketch.op("Div", other, self)

    def __matmul__(self, other: Number) -> Value:
        return self.sketch.op("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.sketch.op("Neg", self)

    def __ge__(self, other: Number) -> Value:
        return self.sketch.op("GreaterOrEqual", self, other, dtype=TRUTH)

    def equals(self, other: Number) -> Value:
        """Returns where numbers are equal."""
        return self.sketch.op("Equal", self, other, dtype=TRUTH)

    def missing(self) -> Value:
        """Returns where numbers are NaN."""
        return self.sketch.op("IsNaN", self, dtype=TRUTH)

    def choose(self, yes: Value | NumpyArray, no: Value | NumpyArray) -> Value:
        """Returns `yes` where this is true, else `no`."""
        return self.sketch.op("Where", self, yes, no, dtype=yes.dtype)

    def cast(self, dtype: np.dtype[Any]) -> Value:
        """Returns the numbers in another type."""
        return self if dtype == self.dtype else self.sketch.op("Cast", self, dtype=dtype, to=dtype)

    def at(self, places: Value | NumpyArray, axis: int = 0) -> Value:
        """Returns the entries at some places of an axis."""
        return self.sketch.op("Gather", self, places, axis=axis)

    def apply(self, operation: str) -> Value:
        """Returns what an operation of one argument makes of each number: Log, Exp, Abs, .."""
        return self.sketch.op(operation, self)

    def at_most(self, bound: float) -> Value:
        """Returns the less of each number and a bound."""
        return self.sketch.op("Min", self, bound)

    def at_least(self, bound: float) -> Value:
        """Returns the greater of each number and a bound."""
        return self.sketch.op("Max", self, bound)

    def probability(self) -> Value:
        """Returns 1 / (1 + exp(-x)) of each number."""
        return 1.0 / ((-self).apply("Exp") + 1.0)

    def row_sums(self) -> Value:
        """Returns the sum of each row, [n, 1]."""
        return self.sketch.op("ReduceSum", self, np.array([1]), keepdims=1)


Number = Value | NumpyArray | float


@dataclass
class Sketch:
    """The operations of a graph in order.

    Attributes:
        nodes: operation, inputs, output and attributes of each.
        inputs: name, type and shape of what is given.
        outputs: name, type and shape of what is made.
        constants: arrays by name.
    """

    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = field(default_factory=list)
    inputs: list[tuple[str, np.dtype[Any], list[Any]]] = field(default_factory=list)
    outputs: list[tuple[str, np.dtype[Any], list[Any]]] = field(default_factory=list)
    constants: dict[str, NumpyArray] = field(default_factory=dict)
    _known: dict[Any, str] = field(default_factory=dict)

    def given(self, name: str, dtype: np.dtype[Any], shape: Sequence[Any]) -> Value:
        """Returns an input of the graph; sizes that are words may be any."""
        self.inputs.append((name, dtype, list(shape)))
        return Value(self, name, dtype)

    def give(self, name: str, value: Value, shape: Sequence[Any]) -> None:
        """Makes a value an output of the graph."""
        self.nodes.append(("Identity", [value.name], name, {}))
        self.outputs.append((name, value.dtype, list(shape)))

    def op(self, kind: str, *given: Number, dtype: np.dtype[Any] | None = None, **attributes: Any) -> Value:
        """Returns what an operation makes; its type is that of the first value unless it is named.

        Plain numbers get the type of the first value, arrays keep theirs.
        """
        first = next(each for each in given if isinstance(each, Value))
        names = [each.name if isinstance(each, Value) else self._constant(each, first.dtype) for each in given]
        out = f"v{len(self.nodes)}"
        self.nodes.append((kind, names, out, attributes))
        return Value(self, out, first.dtype if dtype is None else dtype)

    def constant(self, array: NumpyArray) -> Value:
        """Returns an array of the graph's own."""
        return Value(self, self._constant(array, array.dtype), array.dtype)

    def _constant(self, number: NumpyArray | float, dtype: np.dtype[Any]) -> str:
        array = number if isinstance(number, np.ndarray) else np.array(number, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"c{len(self.constants)}"
            self.constants[self._known[key]] = array
        return self._known[key]

    def model(self, facts: dict[str, str], words: str) -> bytes:
        """Returns the graph as an ONNX model.

        Args:
            facts: stored beside it.
            words: what it is.

        Raises:
            InputError: the package onnx is missing, or the model is larger than a file of its kind can be.
        """
        onnx = package()
        size = sum(array.nbytes for array in self.constants.values())
        if size > MOST_BYTES:
            raise InputError(
                f"export: the model would have {size / 1e9:,.1f} GB, ONNX holds up to 2: train with fewer features"
            )
        make = onnx.helper
        graph = make.make_graph(
            [make.make_node(kind, names, [out], **_attributes(make, how)) for kind, names, out, how in self.nodes],
            "calirare",
            [_told(make, *each) for each in self.inputs],
            [_told(make, *each) for each in self.outputs],
            [onnx.numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = make.make_model(graph, opset_imports=[make.make_opsetid("", OPSET)], ir_version=IR, doc_string=words)
        model.producer_name, model.producer_version = "calirare", facts["calirare"]
        make.set_model_props(model, facts)
        content: bytes = model.SerializeToString()
        return content


def package() -> Any:
    """Returns the package onnx.

    Raises:
        InputError: it is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise InputError(
            "export: --onnx needs the package onnx, which is not installed: pip install 'calirare[onnx]'"
        ) from error
    return onnx


def _told(make: Any, name: str, dtype: np.dtype[Any], shape: list[Any]) -> Any:
    return make.make_tensor_value_info(name, make.np_dtype_to_tensor_dtype(dtype), shape)


def _attributes(make: Any, how: dict[str, Any]) -> dict[str, Any]:
    """Returns attributes with types as ONNX numbers them."""
    return {k: make.np_dtype_to_tensor_dtype(v) if isinstance(v, np.dtype) else v for k, v in how.items()}
