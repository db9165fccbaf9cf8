"""Arrays of NumPy and tensors of PyTorch: what the functional layer takes, works on and gives back."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import functools
import importlib
import inspect
import sys
from typing import Any, Callable, Iterable, Iterator, Optional, Protocol, Sequence, Tuple, TypeVar, Union, cast

import numpy as np

import unmetal
from unmetal import mtl
from unmetal.nn._layout import layout_of


class Array(Protocol):
    """An array of NumPy, a tensor of PyTorch, or whatever else DLPack exchanges."""

    def __dlpack_device__(self) -> Any: ...


ArrayType = TypeVar("ArrayType", bound=Array)
Function = TypeVar("Function", bound=Callable[..., Any])
Number = Union[int, float]
Data = Any  # in a function: an array of NumPy or a tensor of PyTorch, whose operators both have
Shape = Tuple[int, ...]


def wrong(function: str, argument: str, given: object, expected: object) -> unmetal.ArgumentError:
    return unmetal.ArgumentError(f"{function}: {argument} is {given}, expected {expected}")


def checked(condition: object, function: str, argument: str, given: object, expected: object) -> None:
    if not condition:
        raise wrong(function, argument, given, expected)


@functools.lru_cache(maxsize=None)
def default_device() -> mtl.Device:
    return mtl.create_system_default_device()


def is_tensor(array: object) -> bool:
    """Whether it is PyTorch's. Only who has imported PyTorch has tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def place_of(array: Data) -> str:
    """"cpu", "cuda:0", or PyTorch's name of another device."""
    if isinstance(array, np.ndarray):
        return "cpu"
    if is_tensor(array):
        return str(array.device)
    kind, number = array.__dlpack_device__()
    return {1: "cpu", 2: f"cuda:{number}", 3: "cpu"}.get(kind, f"device {number} of DLPack's kind {kind}")


def shape_of(array: Data) -> Shape:
    return tuple(np.shape(array))


@functools.lru_cache(maxsize=None)
def _name_of(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


def type_of(array: Data) -> str:
    """"float32", "int64", ..."""
    return _name_of(array.dtype)


def array_of(value: Any) -> Data:
    return value if is_tensor(value) else np.asarray(value)


def floats(array: Any, name: str) -> Data:
    """An array of float32 or float16."""
    array = array_of(array)
    if type_of(array) not in ("float32", "float16"):
        raise TypeError(f"{name} is an array of {type_of(array)}, expected float32 or float16")
    return array


def wider(*arrays: Data) -> str:
    """The type that holds the elements of all of them."""
    return "float32" if any(type_of(array) == "float32" for array in arrays) else "float16"


def cast_to(array: Data, type: str) -> Data:
    return array.to(getattr(sys.modules["torch"], type)) if is_tensor(array) else array.astype(type, copy=False)


def as_like(value: Any, like: Data, type: Optional[str] = None) -> Data:
    """Numbers or an array where the array `like` is, of `type` or its own."""
    if not is_tensor(like):
        return np.asarray(value, type)
    torch: Any = sys.modules["torch"]
    return torch.as_tensor(value, dtype=None if type is None else getattr(torch, type), device=like.device)


def filled(shape: Iterable[int], value: Number, like: Data, type: str) -> Data:
    """A new array of one value, where the array `like` is."""
    if not is_tensor(like):
        return np.full(tuple(shape), value, type)
    torch: Any = sys.modules["torch"]
    return torch.full(tuple(shape), value, dtype=getattr(torch, type), device=like.device)


def permuted(array: Data, *axes: int) -> Data:
    """A view."""
    return array.permute(axes) if is_tensor(array) else array.transpose(axes)


def moved(array: Data, source: int, destination: int) -> Data:
    """A view with one axis at another place."""
    return array.movedim(source, destination) if is_tensor(array) else np.moveaxis(array, source, destination)


def turned(array: Data) -> Data:
    """[...][y][x][...], both axes backwards."""
    return array.flip((1, 2)) if is_tensor(array) else array[:, ::-1, ::-1]


def packed(array: Data) -> Data:
    """Without gaps: the array itself, or a copy where it is."""
    return array.contiguous() if is_tensor(array) else np.ascontiguousarray(array)


def at_least(array: Data, least: float) -> Data:
    return array.clamp(min=least) if is_tensor(array) else np.maximum(array, np.asarray(least, array.dtype))


def limited(array: Data, least: float, most: float) -> Data:
    return array.clamp(least, most) if is_tensor(array) else np.clip(array, least, most)


def rounded(array: Data) -> Data:
    """To whole numbers; from the middle between two to the even one."""
    return array.round() if is_tensor(array) else np.round(array)


def scaled(array: Data, factor: float) -> Data:
    """Times a number; the type stays."""
    return array * (factor if is_tensor(array) else array.dtype.type(factor))


def total(array: Data, *axes: int) -> Data:
    """float32 sums of float64 numbers along axes; without axes of all elements."""
    if is_tensor(array):
        wide = cast_to(array, "float64")
        return cast_to(wide.sum(dim=axes) if axes else wide.sum(), "float32")
    return np.asarray(array.sum(axis=axes or None, dtype=np.float64), np.float32)[()]


def add_at(array: Data, places: Sequence[Data], values: Data) -> None:
    """array[places] += values; a place may come several times."""
    if is_tensor(array):
        array.index_put_(tuple(as_like(place, array) for place in places), values, accumulate=True)
    else:
        np.add.at(array, tuple(places), values)


def settle(array: Data, where: Data, values: Data) -> Data:
    """Sets the elements of an array at some places, to a number or to those of another array there; returns it."""
    array[where] = values if np.ndim(values) == 0 else values[where]
    return array


def resolved(tensor: Data) -> Data:
    """What DLPack and NumPy cannot tell of a tensor, negated and conjugate elements, is made memory."""
    return tensor.resolve_conj().resolve_neg()


def on_host(array: Data) -> Data:
    """An array of NumPy: a tensor of a GPU is copied."""
    return resolved(array.detach()).cpu().numpy() if is_tensor(array) else array


def _is_array(value: object) -> bool:
    return hasattr(value, "__dlpack_device__")


def _arrays(arguments: Iterable[Tuple[str, Any]]) -> Iterator[Tuple[str, Data]]:
    """(name, array) of all arrays, those in lists included."""
    for name, value in arguments:
        for array in value if isinstance(value, (list, tuple)) else (value,):
            if _is_array(array):
                yield name, array


def _device(function: str, given: Optional[mtl.Device], place: str, first: str) -> mtl.Device:
    """The one on which a function of arrays at that place runs."""
    if place == "cpu":
        return given or default_device()
    checked(given is None or given.name == place, function, "device", given and given.name, f"{place}, where {first} is")
    return given or mtl.device_named(place)


def _tensor_of(array: Any, place: str) -> Data:
    """Shares the memory where PyTorch can, except for numbers that are elsewhere."""
    torch: Any = importlib.import_module("torch")
    if isinstance(array, np.ndarray):
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            array = array.copy()
    elif not isinstance(array, torch.Tensor):
        array = torch.from_dlpack(array)
    return resolved(torch.as_tensor(array, device=place).detach())


def _array_of_host(array: Any) -> Data:
    """An array of NumPy; shares the memory where NumPy can."""
    return resolved(array.detach()).numpy() if is_tensor(array) else np.asarray(array)


def _check_gradient(function: str, name: str, array: Data) -> None:
    if is_tensor(array) and array.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise wrong(function, name, "a tensor that requires a gradient",
                    "tensor.detach(), or torch.no_grad(): PyTorch cannot see through this function")


def _own_library(array: Data) -> Callable[[Data], Any]:
    """Makes the arrays of neither NumPy nor PyTorch of tensors; shares their memory."""
    name = type(array).__module__.partition(".")[0]
    made = getattr(sys.modules.get(name), "from_dlpack", None)
    if made is None:
        raise TypeError(f"{type(array).__name__} is of {name}, which has no from_dlpack: give torch.from_dlpack(array)")
    return cast(Callable[[Data], Any], made)


def _mapped(function: Callable[[Data], Any], value: Any) -> Any:
    """Of an array, or of each of several; anything else stays."""
    if isinstance(value, (list, tuple)):
        return tuple(map(function, value)) if any(map(_is_array, value)) else value
    return function(value) if _is_array(value) else value


def of_arrays(function: Function) -> Function:
    """Lets a function take arrays of NumPy, tensors of PyTorch, of the host or of one GPU, and arrays of a GPU that others
    have and DLPack exchanges. In the function all are NumPy's or all are tensors, `layout` is not None, and `device` is where
    it runs. Its results are of the kind of the first array, and where that is. Arrays of several devices raise
    ArgumentError."""
    name, parameters = function.__name__.lstrip("_"), list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def called(*positional: Any, device: Optional[mtl.Device] = None, **named: Any) -> Any:
        if "layout" in parameters:
            named["layout"] = layout_of(name, named.get("layout"))
        given = list(_arrays([*zip(parameters, positional), *named.items()]))
        # Beside arrays with axes those without are numbers, wherever they are.
        arrays = [(other, array) for other, array in given if np.ndim(array) > 0] or given[:1]
        first, example = arrays[0] if arrays else ("input", np.empty(1))
        place = place_of(example)
        for other, array in arrays:
            if place_of(array) != place:
                raise wrong(name, other, f"on {place_of(array)}", f"{place}, where {first} is")
            _check_gradient(name, other, array)
        is_of_others = place != "cpu" and not is_tensor(example)
        given_back = _own_library(example) if is_of_others else None
        as_tensor = functools.partial(_tensor_of, place=place)
        taken = as_tensor if is_tensor(example) or is_of_others else _array_of_host
        result = function(*(_mapped(taken, value) for value in positional), device=_device(name, device, place, first),
                          **{argument: _mapped(taken, value) for argument, value in named.items()})
        return result if given_back is None else _mapped(given_back, result)

    return cast(Function, called)


def check_written(function: str, name: str, array: Any) -> None:
    """That elements of an argument can be changed in place. @raises ArgumentError"""
    if isinstance(array, np.ndarray):
        found = None if array.flags.writeable else "read-only"
    elif is_tensor(array):
        repeats = any(size > 1 and step == 0 for size, step in zip(array.shape, array.stride()))
        found = "a tensor whose elements share memory" if repeats else None
    else:
        found = None if _is_array(array) and hasattr(array, "__setitem__") else f"a {type(array).__name__}"
    checked(found is None, function, name, found, "an array whose elements can be changed")


def overwrite(array: Any, values: Data) -> None:
    """Sets all elements of an argument, after check_written."""
    if is_tensor(array) or isinstance(array, np.ndarray):
        values = as_like(on_host(values) if not is_tensor(array) else values, array)
    array[:] = values
