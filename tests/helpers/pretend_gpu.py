"""A GPU that is none: tensors in the computer's memory that say "cuda" and refuse what tensors on a GPU refuse.

Code that mixes devices fails on a machine with a GPU alone, and hardly any test runs on one. Under `PretendGpu` a
tensor made for, or moved to, "cuda" is marked, as are results of operations on it; an operation that takes marked and
unmarked tensors, a marked tensor as a NumPy array, or a generator of the other device raises what torch raises. Every
number is computed on the CPU, compiled kernels by their CPU twins. It holds for the thread that enters it; inside a
backward pass, which calls no torch function, nothing is looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Self
from unittest.mock import patch

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from calirare_ext import Csr
from calirare_ext._backend import _C

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
FREE_BYTES = 8 << 30
GETTERS = {
    torch.Tensor.device.__get__: lambda marked: GPU if marked else CPU,
    torch.Tensor.is_cuda.__get__: lambda marked: marked,
    torch.Tensor.is_cpu.__get__: lambda marked: not marked,
    torch.Tensor.get_device: lambda marked: 0 if marked else -1,
}
TO_ARRAYS = (torch.Tensor.numpy, torch.Tensor.__array__)
MOVES = (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda)
COPIES = (
    *(torch.Tensor.copy_, torch.Tensor.data.__set__, torch.Tensor.grad.__set__, torch.Tensor.set_),
    torch._has_compatible_shallow_copy_type,
)
INDEXED = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
SAME_DEVICE = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


class Generator(torch._C.Generator):
    """A generator of the CPU that says which device it was made for."""

    def __new__(cls, device: torch.device | str = "cpu") -> Self:
        """Makes one for a device."""
        made = super().__new__(cls, "cpu")
        made.pretends = torch.device(device).type
        return made


class PretendGpu(TorchFunctionMode):
    """Makes "cuda" a device, as long as it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[int, StorageWeakRef] = {}
        self.until = 1000
        self.patches = ExitStack()

    def __enter__(self) -> Self:
        """Puts the pretended GPU in place."""
        for target, name, there in (
            (torch, "Generator", Generator),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "mem_get_info", lambda device=None: (FREE_BYTES, FREE_BYTES)),
            (torch.cuda, "synchronize", lambda device=None: None),
            (torch.cuda, "get_rng_state", lambda device=None: torch.empty(0)),
            (torch.cuda, "set_rng_state", lambda state, device=None: None),
            (torch.cuda, "get_device_name", lambda device=None: "a pretended GPU"),
            (_C, "cuda_status", lambda: (True, 1, "")),
        ):
            self.patches.enter_context(patch.object(target, name, there))
        for name, kernel in vars(_C).items():
            if callable(kernel) and not isinstance(kernel, type) and name != "cuda_status":
                self.patches.enter_context(patch.object(_C, name, self._of_kernel(kernel)))
        self.patches.enter_context(patch.object(Csr, "transpose", self._kept(Csr.transpose)))
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        """Takes it away again."""
        super().__exit__(*raised)
        self.patches.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Does what torch would do, on the CPU."""
        kwargs = dict(kwargs or {})
        if func in GETTERS:
            return GETTERS[func](self.marked(args[0]))
        if func in TO_ARRAYS and self.marked(args[0]):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it first.")
        if func in MOVES:
            return self._moved(func, args, kwargs)
        there = self._agreed(func, args, kwargs)
        if kwargs.get("device") is not None:
            there = torch.device(kwargs["device"]).type == "cuda"
            kwargs["device"] = "cpu"
        draws = kwargs.get("generator")
        if draws is not None and getattr(draws, "pretends", "cpu") != ("cuda" if there else "cpu"):
            raise RuntimeError(
                f"Expected a generator of the other device type than {getattr(draws, 'pretends', 'cpu')}"
            )
        return self._mark(func(*args, **kwargs)) if there else func(*args, **kwargs)

    def marked(self, tensor: Tensor) -> bool:
        """Tells whether a tensor is on the pretended GPU."""
        return _storage(tensor)._cdata in self.marks

    def _mark(self, result: Any) -> Any:
        for tensor in _tensors(result):
            storage = _storage(tensor)
            if storage._cdata not in self.marks:
                self.marks[storage._cdata] = StorageWeakRef(storage)
        if len(self.marks) > self.until:
            self.marks = {place: ref for place, ref in self.marks.items() if not ref.expired()}
            self.until = 1000 + 2 * len(self.marks)
        return result

    def _moved(self, func: Callable, args: Any, kwargs: dict[str, Any]) -> Tensor:
        wanted, dtype = {torch.Tensor.cpu: "cpu", torch.Tensor.cuda: "cuda"}.get(func), None
        for value in (*args[1:], *kwargs.values()) if func is torch.Tensor.to else ():
            if isinstance(value, torch.dtype):
                dtype = value
            elif isinstance(value, torch.device | str):
                wanted = torch.device(value).type
            elif isinstance(value, Tensor):
                wanted, dtype = "cuda" if self.marked(value) else "cpu", value.dtype
        here = self.marked(args[0])
        there = here if wanted is None else wanted == "cuda"
        result = args[0] if dtype is None else args[0].to(dtype)
        if result is args[0] and (there != here or kwargs.get("copy")):
            result = result.clone()
        return self._mark(result) if there else result

    def _agreed(self, func: Callable, args: Any, kwargs: dict[str, Any]) -> bool:
        """Returns whether the operation is one of the GPU's, and refuses one of both."""
        tensors = list(_tensors((args, kwargs)))
        marks = [self.marked(tensor) for tensor in tensors]
        if not any(marks) or all(marks):
            return any(marks)
        if func in COPIES:
            return marks[0]
        if func in INDEXED:
            return self._agreed_index(args, marks[0])
        if all(mark or tensor.ndim == 0 for tensor, mark in zip(tensors, marks, strict=True)) and func not in STRICT:
            return True
        raise RuntimeError(f"{SAME_DEVICE} (in {getattr(func, '__name__', func)})")

    def _agreed_index(self, args: Any, there: bool) -> bool:
        """An index on the CPU may read a tensor on the GPU, not the other way round; neither writes what is apart."""
        places = list(_tensors(args[1]))
        if not there and any(map(self.marked, places)):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        values = args[2] if len(args) > 2 and places else None
        if isinstance(values, Tensor) and values.ndim and self.marked(values) != there:
            raise RuntimeError(f"{SAME_DEVICE} (in index_put_)")
        return there

    def _of_kernel(self, kernel: Callable) -> Callable:
        @functools.wraps(kernel)
        def watched(*args: Any, **kwargs: Any) -> Any:
            marks = {self.marked(tensor) for tensor in _tensors((args, kwargs))}
            if len(marks) > 1:
                raise ValueError(f"{kernel.__name__}: {SAME_DEVICE}")
            if marks != {True}:
                return kernel(*args, **kwargs)
            return self._mark(kernel(*(self._of_callback(x) if callable(x) else x for x in args), **kwargs))

        return watched

    def _kept(self, transpose: Callable[[Csr], Csr]) -> Callable[[Csr], Csr]:
        """Of what may be made in a backward pass, where no operation is seen, and is kept beyond it."""

        def watched(a: Csr) -> Csr:
            turned = transpose(a)
            if self.marked(a.values):
                self._mark((turned.indptr, turned.indices, turned.values))
            return turned

        return watched

    def _of_callback(self, callback: Callable) -> Callable:
        return lambda *args: callback(*self._mark(args))


STRICT = (torch.index_select, torch.Tensor.index_select, torch.mm, torch.matmul, torch.Tensor.__matmul__)


def _tensors(parts: Any) -> Iterator[Tensor]:
    return (leaf for leaf in pytree.tree_leaves(parts) if isinstance(leaf, Tensor))


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    """Returns what holds a tensor's numbers, also under torch.func."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout == torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc):
        tensor = tensor.values()
    return tensor.untyped_storage()
