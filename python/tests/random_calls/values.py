"""Arguments: mostly what the annotation says and what fits together, now and then anything else."""

import ast
import enum
import pathlib

import numpy as np

import unmetal

SMALL = (1, 2, 3, 4)
INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64, 255, 256, 257, -1, -2, -4)
EXTREME = (2**31 - 1, 2**31, -2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -2**63,
           -2**63 - 1, 10**30)
FLOATS = (0.0, 1.0, 0.5, -1.0, 2.0, 0.1, 1e-3, 3.5)
STRANGE_FLOATS = (float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 1e-320, 3.4e38, -3.5e38, 1e300)
TEXTS = ("", "a", "cpu", "weights", "loss", "ü", "a" * 300, "nul\0inside", "cuda:99", "\udc80", "{}%s%n")
TYPES = (np.float32, np.float32, np.float32, np.float16, np.uint8, np.uint16, np.float64, np.int64, np.int32, np.uint32,
         np.bool_, np.complex64)
SHAPES = ((4, 4, 4), (2, 4, 4, 4), (4,), (4, 1, 1, 4), (), (0,), (1, 1, 1), (3, 2), (16,), (2, 3, 4, 5, 6), (4, 0, 4),
          (64,), (256,), (4, 3, 3, 4))
# Of arrays that fit together, by the name of the parameter that takes them.
IMAGES = ((2, 4, 4, 4),)
FITTING = {"input": IMAGES, "other": IMAGES, "target": (*IMAGES, (2, 4, 4)), "grid": ((2, 4, 4, 2),),
           "grad_output": (*IMAGES, *IMAGES, (), (2, 2, 2, 4), (2, 8, 8, 4)),
           "weight": ((4, 3, 3, 4), (4, 1, 1, 4), (4, 4), (4,), (4,)), "bias": ((4,),), "running_mean": ((4,),),
           "running_var": ((4,),)}
UNDEFINED = {"SkipAPIValidation"}  # its documentation says that bad arguments are undefined behaviour then


class Values:
    """Draws from a generator of numbers, a pool of objects and a function that gives objects of a class."""

    def __init__(self, random, pool, instance, resolve):
        self.random, self.pool, self.instance, self.resolve = random, pool, instance, resolve

    def chance(self, probability):
        return self.random.random() < probability

    def one_of(self, values):
        return self.random.choice(values)

    def integer(self):
        chosen = self.random.random()
        return self.one_of(SMALL if chosen < 0.75 else INTEGERS if chosen < 0.94 else EXTREME)

    def number(self):
        return self.one_of(FLOATS if self.chance(0.85) else STRANGE_FLOATS)

    def fitting(self, name):
        """An array of small numbers for a parameter of this name; None where none is known to fit."""
        if name not in FITTING:
            return None
        shape = self.one_of(FITTING[name])
        return np.array(self.random.choices((0.5, 0, 1), k=int(np.prod(shape))), np.float32).reshape(shape)

    def array(self):
        shape, element = self.one_of(SHAPES), self.one_of(TYPES)
        with np.errstate(all="ignore"):
            values = np.array(self.random.choices(FLOATS + (STRANGE_FLOATS if self.chance(0.2) else ()),
                                                  k=int(np.prod(shape))), np.float64).reshape(shape).astype(element)
        if self.chance(0.1) and values.ndim:
            values = values[::-1]
        if self.chance(0.1):
            values = values.T
        if self.chance(0.05):
            values.setflags(write=False)
        return values

    def path(self):
        files = sorted(pathlib.Path().iterdir())
        return self.one_of([*files, pathlib.Path("new"), pathlib.Path("missing/file"), pathlib.Path(".")])

    def anything(self):
        """Of no type in particular."""
        return self.one_of((lambda: None, self.integer, self.number, self.array, lambda: self.one_of(TEXTS), list, dict,
                            object, lambda: True, lambda: b"bytes", self.pool.any, self.pool.any, self.pool.any,
                            lambda: [self.pool.any()], lambda: self.function))()

    def function(self, *arguments):
        """What calls back."""
        if self.chance(0.1):
            raise ValueError("a function that raises")
        return self.one_of((None, None, None, 0, 1, True, "text"))

    def member(self, enumeration):
        members = [member for member in enumeration if member.name not in UNDEFINED]
        chosen = self.one_of(members)
        if issubclass(enumeration, enum.Flag) and self.chance(0.3):
            try:
                return enumeration(chosen.value | self.one_of(members).value)
            except AttributeError:  # of Python 3.11, for bits that are in masks alone
                return chosen
        return chosen

    def of(self, annotation):
        if annotation is None or self.chance(0.03):
            return self.anything()
        return self.of_expression(annotation)

    def of_expression(self, node):
        if isinstance(node, ast.Constant):
            return self.of_expression(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node.value
        if isinstance(node, ast.BinOp):  # X | None
            return self.of_expression(node.right if self.chance(0.3) else node.left)
        if isinstance(node, ast.Subscript):
            return self.of_generic(ast.unparse(node.value).rsplit(".", 1)[-1], node.slice)
        return self.of_name(ast.unparse(node))

    def of_generic(self, name, inner):
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name in ("Sequence", "list", "List", "Iterable"):
            return [self.of(parts[0]) for _ in range(self.one_of((0, 1, 1, 2, 2, 2, 3, 4, 17)))]
        if name in ("tuple", "Tuple"):
            return tuple(self.of(part) for part in parts)
        if name in ("dict", "Mapping"):
            keys = [self.of(parts[0]) for _ in range(self.one_of((0, 1, 2)))]
            return {key if isinstance(key, str) else repr(type(key)): self.of(parts[1]) for key in keys}
        if name == "Callable":
            return self.function
        if name in ("Optional", "Union"):
            return self.of_expression(self.one_of(parts))
        if name == "Annotated":
            return self.of_expression(parts[0])
        if name == "Literal":
            return self.one_of(parts).value
        return self.array() if "rray" in name else self.anything()

    def of_name(self, name):
        simple = {"int": self.integer, "float": self.number, "bool": lambda: self.chance(0.5), "None": lambda: None,
                  "str": lambda: self.one_of(TEXTS), "bytes": self.pool.data, "object": self.anything}
        if name in simple:
            return simple[name]()
        bound = self.resolve(name)
        if isinstance(bound, type):
            return self.member(bound) if issubclass(bound, enum.Enum) else self.instance(bound)
        last = name.rsplit(".", 1)[-1]
        if "Path" in last:
            return self.path()
        if "rray" in last or last == "Buffer":
            return self.array()
        return self.function if last == "Callable" else self.anything()


class Pool:
    """The objects that there are, by class; the last ones of each."""

    def __init__(self, random, most):
        self.random, self.most = random, most
        self.by_class, self.names, self.count = {}, {}, 0

    def add(self, value):
        """Takes what the module has made, also from lists; gives it a name for the log."""
        if isinstance(value, (list, tuple)):
            for inner in value[:4]:
                self.add(inner)
        if isinstance(value, bytes):
            self.keep(bytes, value)
        if not type(value).__module__.startswith("unmetal") and not isinstance(value, unmetal.SecureCoding):
            return
        if isinstance(value, (enum.Enum, type)):
            return
        self.count += 1
        self.names[id(value)] = f"{type(value).__name__}#{self.count}"
        for bound in type(value).__mro__[:-1]:
            self.keep(bound, value)

    def keep(self, bound, value):
        values = self.by_class.setdefault(bound, [])
        values.append(value)
        if len(values) > self.most:
            values.pop(self.random.randrange(self.most))

    def of(self, bound):
        values = self.by_class.get(bound)
        return self.random.choice(values) if values else None

    def any(self):
        values = list(self.by_class.values())
        return self.random.choice(self.random.choice(values)) if values else None

    def data(self):
        """Coded data: whole, damaged or none at all."""
        whole = self.of(bytes)
        if not whole or self.random.random() < 0.1:
            return self.random.choice((b"", b"\xa0", b"\x00" * 40, b"\xff"))
        return self.damaged(whole, 0.5)

    def damaged(self, whole, probability):
        if self.random.random() > probability:
            return whole
        damaged = bytearray(whole)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            damaged[self.random.randrange(len(damaged))] = self.random.randrange(256)
        return bytes(damaged)

    def described(self, value):
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self.described, value)) + "]"
        if isinstance(value, np.ndarray):
            return f"array({value.dtype}, {value.shape}, strides {value.strides})"
        if id(value) in self.names and type(value).__module__ != "builtins":
            return self.names[id(value)]
        if isinstance(value, (int, float, str, bytes, type(None), enum.Enum)):
            return repr(value)
        return type(value).__name__
