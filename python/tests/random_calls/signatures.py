"""What can be called, read and set, with types: read from the stubs beside the extension, and of the functions of arrays
from the functions themselves."""

import ast
import dataclasses
import inspect
import pathlib
import re

import unmetal
from unmetal.nn import functional

MODULES = {"__init__": unmetal._core, "mtl": unmetal._core.mtl}
FUNCTIONAL = "nn.functional."
# What the names in annotations of `unmetal.nn.functional` stand for.
ALIASES = {"Any": "ArrayType", "Data": "ArrayType", "Pair": "Union[int, Sequence[int]]", "Number": "Union[int, float]",
           "Layout": "Literal['NHWC', 'NCHW']", "Switch": "Optional[bool]"}


@dataclasses.dataclass(frozen=True)
class Parameter:
    name: str
    annotation: "ast.expr | None"
    has_default: bool
    by_name_only: bool = False


@dataclasses.dataclass(frozen=True)
class Call:
    """One overload of a method, a function or a constructor; or a property that is read or set."""

    name: str
    owner: "type | None"  # None of functions
    kind: str  # function, method, static, new, get or set
    parameters: tuple = ()
    returns: "ast.expr | None" = None

    @property
    def member(self):
        return self.name.rsplit(".", 1)[-1]


def decorators(node):
    return [ast.unparse(decorator) for decorator in node.decorator_list]


def parameters_of(node, skipped):
    arguments = node.args
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    found = [Parameter(argument.arg, argument.annotation, default is not None)
             for argument, default in zip(positional, defaults)][skipped:]
    found += [Parameter(argument.arg, argument.annotation, default is not None, True)
              for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return tuple(found)


def call_of(node, owner, prefix):
    """The overload that a function of a stub declares; None for what the interpreter calls by itself."""
    name = f"{prefix}{node.name}"
    marks = decorators(node)
    if owner is None:
        return Call(name, None, "function", parameters_of(node, 0), node.returns)
    if "property" in marks:
        return Call(name, owner, "get", (), node.returns)
    if any(mark.endswith(".setter") for mark in marks):
        return Call(name, owner, "set", parameters_of(node, 1))
    if node.name in ("__init__", "__new__"):
        return Call(name, owner, "new", parameters_of(node, 1), None)
    if "staticmethod" in marks:
        return Call(name, owner, "static", parameters_of(node, 0), node.returns)
    return Call(name, owner, "method", parameters_of(node, 1), node.returns)


def fields_of(node, owner, prefix):
    """Attributes that a stub annotates: they are read and set."""
    for inner in node.body:
        if isinstance(inner, ast.AnnAssign):
            name = f"{prefix}{inner.target.id}"
            yield Call(name, owner, "get", (), inner.annotation)
            yield Call(name, owner, "set", (Parameter("value", inner.annotation, False),))


def calls_of_module(stub, module):
    prefix = "" if stub == "__init__" else f"{stub}."
    text = (pathlib.Path(unmetal.__file__).parent / "_core" / f"{stub}.pyi").read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            yield call_of(node, None, prefix)
        if not isinstance(node, ast.ClassDef):
            continue
        owner = getattr(module, node.name)
        if any(isinstance(base, ast.Name) and base.id in ("Exception", "RuntimeError") for base in node.bases):
            continue
        inside = f"{prefix}{node.name}."
        yield from (call_of(inner, owner, inside) for inner in node.body if isinstance(inner, ast.FunctionDef))
        yield from fields_of(node, owner, inside)


def annotation_of(text):
    whole = re.sub(r"\b[A-Z]\w+\b", lambda found: ALIASES.get(found[0], found[0]), text)
    return ast.parse(whole, mode="eval").body


def calls_of_functional():
    for name in functional.__all__:
        parameters = inspect.signature(getattr(functional, name)).parameters.values()
        yield Call(FUNCTIONAL + name, None, "function", tuple(
            Parameter(one.name, annotation_of(one.annotation), one.default is not one.empty, one.kind is one.KEYWORD_ONLY)
            for one in parameters))


def all_calls():
    """Every overload of the module's stubs, in their order, and the functions of arrays."""
    return [*(call for stub, module in MODULES.items() for call in calls_of_module(stub, module)), *calls_of_functional()]


def named(path):
    """The class or object that a name of a stub stands for; None for names of other modules."""
    path = path.removeprefix("unmetal._core.").removeprefix("_core.")
    found = unmetal._core
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
