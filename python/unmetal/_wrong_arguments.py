"""The sentence of a TypeError: which argument of a call is wrong, what it is, and what it should be.

The extension calls `sentence` when no overload of a function takes the arguments of a call."""

import ast
import enum
import inspect
import re

from . import _core


def sentence(name, function, positional, named, text):
    """@return the text of nanobind's error, behind a sentence about the argument that is wrong, where one is found"""
    overloads = list(signatures(function))
    if name.endswith("__new__") and len(overloads) > 1:
        overloads = overloads[1:]  # the first one makes objects without a value
    for strictly in (False, True):  # of numbers the type first, then whether they are too large or too small
        found = [problem(overload, positional, named, strictly) for overload in overloads]
        found = [one for one in found if one is not None]
        if found:
            break
    else:
        return text
    # The overload that gets furthest is the one that was meant.
    _, what = max(found, key=lambda one: one[0])
    return f"{re.sub('[.]__(init|new)__$', '', name)}: {what}\n\n{text}"


def signatures(function):
    """The overloads: parameters with the syntax trees of their types."""
    for text, *_ in function.__nb_signature__:
        text = re.sub(r"^def \(", "def setter(", re.sub(r"\\\d+", "None", text).split("\n")[-1])
        tree = ast.parse(text + ": ...").body[0]
        yield inspect.Signature(list(parameters(tree.args)), __validate_parameters__=False)


def parameters(arguments):
    positional = arguments.posonlyargs + arguments.args
    first_default = len(positional) - len(arguments.defaults)
    for index, argument in enumerate(positional):
        kind = (inspect.Parameter.POSITIONAL_ONLY if index < len(arguments.posonlyargs)
                else inspect.Parameter.POSITIONAL_OR_KEYWORD)
        default = None if index >= first_default else inspect.Parameter.empty
        yield inspect.Parameter(argument.arg, kind, default=default, annotation=argument.annotation)
    if arguments.vararg:
        yield inspect.Parameter(arguments.vararg.arg, inspect.Parameter.VAR_POSITIONAL)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        yield inspect.Parameter(argument.arg, inspect.Parameter.KEYWORD_ONLY, annotation=argument.annotation,
                                default=inspect.Parameter.empty if default is None else None)
    if arguments.kwarg:
        yield inspect.Parameter(arguments.kwarg.arg, inspect.Parameter.VAR_KEYWORD)


def problem(signature, positional, named, strictly):
    """@return (how many arguments were right, what is wrong with the next); None where nothing is found"""
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        return 0, str(error)
    right = 0
    for name, value in bound.arguments.items():
        annotation = signature.parameters[name].annotation
        if isinstance(annotation, ast.expr) and not fits(value, annotation, strictly):
            name = "the value" if name.startswith("arg") else name
            return right, f"{name} is {described(value)}, expected {words(annotation, strictly)}"
        right += 1
    return None


def described(value):
    if value is None or isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return f"{text if len(text) < 40 else text[:40] + '...'} ({type(value).__name__})"
    return f"of type {type(value).__name__}"


def words(annotation, strictly):
    """The type as users know it."""
    text = ast.unparse(annotation).replace("unmetal._core.", "").replace("collections.abc.", "")
    text = re.sub(r"typing\.Annotated\[numpy\.typing\.\w+.*|numpy\.typing\.\w+(\[.*\])?|typing\.Annotated\[.*ArrayLike.*",
                  "an array", text)
    return "an int in range" if text == "int" and strictly else text


def fits(value, annotation, strictly):
    """Whether a value may be of that type: what is not known fits."""
    if isinstance(annotation, ast.Constant):
        return value is None if annotation.value is None else True
    if isinstance(annotation, ast.BinOp):
        return fits(value, annotation.left, strictly) or fits(value, annotation.right, strictly)
    if isinstance(annotation, ast.Subscript):
        return fits_generic(value, ast.unparse(annotation.value).rsplit(".", 1)[-1], annotation.slice, strictly)
    name = ast.unparse(annotation)
    if name == "int":
        return hasattr(value, "__index__") and not (strictly and not 0 <= value.__index__() < 2**31)
    if name == "float":
        return hasattr(value, "__float__") or hasattr(value, "__index__")
    simple = {"bool": bool, "str": str, "bytes": bytes, "None": type(None)}
    if name in simple:
        return isinstance(value, simple[name])
    return not name.startswith("unmetal._core.") or fits_class(value, name)


def fits_class(value, name):
    found = _core
    for part in name.split(".")[2:]:
        found = getattr(found, part, None)
    if not isinstance(found, type) or isinstance(value, found):
        return True
    return name.endswith("Batch") and isinstance(value, (list, tuple))  # a list is one


def fits_generic(value, name, inner, strictly):
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name in ("Sequence", "list"):
        return isinstance(value, (list, tuple)) and all(fits(one, parts[0], strictly) for one in value)
    if name == "Callable":
        return callable(value)
    if name in ("Optional", "Union"):
        return any(fits(value, part, strictly) for part in parts) or (name == "Optional" and value is None)
    if name in ("Annotated",):
        return fits(value, parts[0], strictly)
    if "NDArray" in name:
        return hasattr(value, "__array__") or hasattr(value, "__dlpack__") or hasattr(value, "__buffer__")
    return True
