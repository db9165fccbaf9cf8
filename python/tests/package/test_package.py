"""What is installed beside the extension: types, version."""

import ast
import enum
import pathlib
import re
import subprocess
import sys

import pytest

import unmetal

package = pathlib.Path(unmetal.__file__).parent


def test_the_version():
    cmake = (pathlib.Path(__file__).resolve().parents[3] / "CMakeLists.txt").read_text()
    assert unmetal.__version__ == re.search(r"project\(unmetal VERSION ([0-9.]+)", cmake).group(1)


def test_typed_stubs():
    assert (package / "py.typed").is_file()
    for name, bound in (("__init__", unmetal._core), ("mtl", unmetal._core.mtl), ("onnx", unmetal._core.onnx),
                        ("train", unmetal._core.train)):
        tree = ast.parse((package / "_core" / f"{name}.pyi").read_text())
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        assert {name for name, found in vars(bound).items() if isinstance(found, type)} - {"Error"} <= set(classes)
    text = (package / "_core" / "__init__.pyi").read_text()
    assert re.search(r"def kernel_width\(self\) -> int:", text)
    assert "from unmetal._core import mtl as mtl" in text and "class Error(RuntimeError):" in text
    assert "def encode(self, command_buffer: mtl.CommandBuffer, source_image: Image) -> Image:" in text


def test_the_extension_is_hardened():
    """RELRO, all symbols bound at start, stack protector and checked calls of the C library."""
    check = pathlib.Path(__file__).resolve().parents[3] / "tests" / "check_hardening.py"
    done = subprocess.run([sys.executable, "-B", check, "--files", unmetal._core.__file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def declared(node):
    """What the stub of a class has: methods, properties and classes by name, with None; constants with their values."""
    members = {inner.name: None for inner in node.body if isinstance(inner, (ast.FunctionDef, ast.ClassDef))}
    members.update((inner.target.id, None) for inner in node.body if isinstance(inner, ast.AnnAssign))
    constants = [inner for inner in node.body if isinstance(inner, ast.Assign)]
    members.update((inner.targets[0].id, ast.literal_eval(inner.value)) for inner in constants)
    return members


@pytest.mark.parametrize("name, bound", [("__init__", unmetal._core), ("mtl", unmetal._core.mtl),
                                         ("onnx", unmetal._core.onnx), ("train", unmetal._core.train)])
def test_stubs_have_every_member(name, bound):
    text = (package / "_core" / f"{name}.pyi").read_text()
    stubs = {node.name: declared(node) for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    for name, found in vars(bound).items():
        if isinstance(found, type) and found.__name__ == name and name != "Error":
            members = {member for member in vars(found) if not member.startswith(("_", "@"))}
            assert members <= set(stubs[name]), (name, members - set(stubs[name]))
            if issubclass(found, enum.Enum):
                assert {member: value.value for member, value in found.__members__.items()}.items() <= stubs[name].items()


def test_names_of_the_package():
    assert unmetal.mtl.__name__ == "unmetal.mtl" and unmetal.mtl.Device is unmetal._core.mtl.Device
    assert unmetal.mtl.CommandBuffer is not unmetal.CommandBuffer


def test_the_stub_of_the_package_exports_what_the_package_has():
    """`from ._core import *` there exports every class; what else the package has stands by name."""
    tree = ast.parse((package / "__init__.pyi").read_text())
    named = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names if alias.asname}
    assert "*" in {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    public = {name for name in vars(unmetal) if not name.startswith("_")} - {"nn"}
    assert public - set(vars(unmetal._core)) <= named
    assert set(unmetal.__all__) >= public


SOURCES = sorted(pathlib.Path(__file__).parents[2].glob("**/*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_what_python_3_9_cannot_do(source):
    """Syntax; and classes of several bases, one of them ours, which nanobind 2 refuses (nanobind 3 needs Python 3.10)."""
    tree = ast.parse(source.read_text(), feature_version=(3, 9))
    assert all(len(node.bases) <= 1 for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
