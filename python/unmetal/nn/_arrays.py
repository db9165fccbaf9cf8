"""Arrays of NumPy and tensors of PyTorch: what the functional layer takes, works on and gives back."""

import functools
import inspect
import sys

import numpy as np

import unmetal
from unmetal import mtl


def wrong(function, argument, given, expected):
    return unmetal.ArgumentError(f"{function}: {argument} is {given}, expected {expected}")


def checked(condition, *sentence):
    if not condition:
        raise wrong(*sentence)


@functools.lru_cache(maxsize=None)
def default_device():
    return mtl.create_system_default_device()


def is_tensor(array):
    """Whether it is PyTorch's. Only who has imported PyTorch has tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def place_of(array):
    """"cpu", "cuda:0", or PyTorch's name of another device."""
    if isinstance(array, np.ndarray):
        return "cpu"
    if is_tensor(array):
        return str(array.device)
    kind, number = array.__dlpack_device__()
    return {1: "cpu", 2: f"cuda:{number}", 3: "cpu"}.get(kind, f"device {number} of DLPack's kind {kind}")


def shape_of(array):
    return tuple(np.shape(array))


@functools.lru_cache(maxsize=None)
def _name_of(dtype):
    return str(dtype).replace("torch.", "")


def type_of(array):
    """"float32", "int64", ..."""
    return _name_of(array.dtype)


def array_of(value):
    return value if is_tensor(value) else np.asarray(value)


def floats(array, name):
    """An array of float32 or float16."""
    array = array_of(array)
    if type_of(array) not in ("float32", "float16"):
        raise TypeError(f"{name} is an array of {type_of(array)}, expected float32 or float16")
    return array


def wider(*arrays):
    """The type that holds the elements of all of them."""
    return "float32" if any(type_of(array) == "float32" for array in arrays) else "float16"


def cast(array, type):
    return array.to(getattr(sys.modules["torch"], type)) if is_tensor(array) else array.astype(type, copy=False)


def as_like(value, like, type=None):
    """Numbers or an array where the array `like` is, of `type` or its own."""
    if not is_tensor(like):
        return np.asarray(value, type)
    torch = sys.modules["torch"]
    return torch.as_tensor(value, dtype=None if type is None else getattr(torch, type), device=like.device)


def filled(shape, value, like, type):
    """A new array of one value, where the array `like` is."""
    if not is_tensor(like):
        return np.full(shape, value, type)
    torch = sys.modules["torch"]
    return torch.full(tuple(shape), value, dtype=getattr(torch, type), device=like.device)


def permuted(array, *axes):
    """A view."""
    return array.permute(axes) if is_tensor(array) else array.transpose(axes)


def moved(array, source, destination):
    """A view with one axis at another place."""
    return array.movedim(source, destination) if is_tensor(array) else np.moveaxis(array, source, destination)


def turned(array):
    """[...][y][x][...], both axes backwards."""
    return array.flip((1, 2)) if is_tensor(array) else array[:, ::-1, ::-1]


def packed(array):
    """Without gaps: the array itself, or a copy where it is."""
    return array.contiguous() if is_tensor(array) else np.ascontiguousarray(array)


def on_host(array):
    """An array of NumPy: a tensor of a GPU is copied."""
    return array.cpu().numpy() if is_tensor(array) else array


def _is_array(value):
    return hasattr(value, "__dlpack_device__")


def _arrays(arguments):
    """(name, array) of all arrays, those in lists included. What has no axes is a number, wherever it is."""
    for name, value in arguments:
        for array in value if isinstance(value, (list, tuple)) else (value,):
            if _is_array(array) and np.ndim(array) > 0:
                yield name, array


def _device(function, given, place, first):
    """The one on which a function of arrays at that place runs."""
    if place == "cpu":
        return given or default_device()
    checked(given is None or given.name == place, function, "device", given and given.name, f"{place}, where {first} is")
    return given or mtl.device_named(place)


def _tensor_of(array, place):
    """Shares the memory, except for numbers that are elsewhere."""
    import torch

    if not isinstance(array, (torch.Tensor, np.ndarray)):
        array = torch.from_dlpack(array)
    return torch.as_tensor(array, device=place).detach()


def _check_gradient(function, name, array):
    if is_tensor(array) and array.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise wrong(function, name, "a tensor that requires a gradient",
                    "tensor.detach(), or torch.no_grad(): PyTorch cannot see through this function")


def _own_library(array):
    """Makes the arrays of neither NumPy nor PyTorch of tensors; shares their memory."""
    name = type(array).__module__.partition(".")[0]
    made = getattr(sys.modules.get(name), "from_dlpack", None)
    if made is None:
        raise TypeError(f"{type(array).__name__} is of {name}, which has no from_dlpack: give torch.from_dlpack(array)")
    return made


def _mapped(function, value):
    """Of an array, or of each of several; anything else stays."""
    if isinstance(value, (list, tuple)):
        return tuple(map(function, value)) if any(map(_is_array, value)) else value
    return function(value) if _is_array(value) else value


def of_arrays(function):
    """Lets a function take arrays of NumPy, tensors of PyTorch, of the host or of one GPU, and arrays of a GPU that others
    have and DLPack exchanges. In the function all are NumPy's or all are tensors, and `device` is where it runs. Its results
    are of the kind of the first array, and where that is. Arrays of several devices raise ArgumentError."""
    name, parameters = function.__name__, list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def called(*positional, device=None, **named):
        arrays = list(_arrays([*zip(parameters, positional), *named.items()]))
        first, example = arrays[0] if arrays else ("input", np.empty(1))
        place = place_of(example)
        for other, array in arrays:
            if place_of(array) != place:
                raise wrong(name, other, f"on {place_of(array)}", f"{place}, where {first} is")
            _check_gradient(name, other, array)
        is_of_others = place != "cpu" and not is_tensor(example)
        given_back = _own_library(example) if is_of_others else None
        as_tensor = functools.partial(_tensor_of, place=place)
        taken = as_tensor if is_tensor(example) or is_of_others else np.asarray
        result = function(*(_mapped(taken, value) for value in positional), device=_device(name, device, place, first),
                          **{argument: _mapped(taken, value) for argument, value in named.items()})
        return result if given_back is None else _mapped(given_back, result)

    return called
