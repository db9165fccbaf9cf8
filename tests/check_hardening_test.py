"""check_hardening.py finds each thing that a library lacks, and each source that is compiled without one."""

import json
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
HARDENED = {"the stack protector": ["-fstack-protector-strong"], "_FORTIFY_SOURCE": ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"],
            "RELRO": ["-Wl,-z,relro"], "BIND_NOW": ["-Wl,-z,now"]}
SOFT = {"the stack protector": ["-fno-stack-protector"], "_FORTIFY_SOURCE": ["-U_FORTIFY_SOURCE"], "RELRO": ["-Wl,-z,norelro"],
        "BIND_NOW": ["-Wl,-z,lazy"]}


def found(compiler, file, soft):
    options = [option for name in HARDENED for option in (SOFT if name == soft else HARDENED)[name]]
    subprocess.run([compiler, "-O2", "-fPIC", "-shared", *options, FOLDER / "hardened_library.cpp", "-o", file], check=True)
    return check("--files", file)


def check(*arguments):
    done = subprocess.run([sys.executable, "-B", FOLDER / "check_hardening.py", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def found_in_commands(file, options, *, of="unmetal", source="a.cpp"):
    """Of a source of the library and one of a test, which needs nothing."""
    entries = [{"file": f"/{name}", "command": f"c++ {words} -o CMakeFiles/{target}.dir/{name}.o -c /{name}"}
               for target, name, words in ((of, source, options), ("some_tests", "test.cpp", "-O0"))]
    file.write_text(json.dumps(entries))
    return check("--commands", file, "unmetal")


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "library.so"
        assert found(sys.argv[1], file, None) == (0, "1 files, 0 targets, 0 findings\n")
        for name in HARDENED:
            code, text = found(sys.argv[1], file, name)
            assert code == 1 and f"{file} lacks {name}\n" in text, text
        commands = pathlib.Path(folder) / "commands.json"
        compiled = [option for name in ("the stack protector", "_FORTIFY_SOURCE") for option in HARDENED[name]]
        assert found_in_commands(commands, " ".join(compiled)) == (0, "0 files, 1 targets, 0 findings\n")
        for name in ("the stack protector", "_FORTIFY_SOURCE"):
            without = [option for option in compiled if option not in HARDENED[name]]
            for words in (without, [*compiled, *SOFT[name]]):
                code, text = found_in_commands(commands, " ".join(words))
                assert code == 1 and f"a.cpp.o is compiled without {name}\n" in text and "1 findings" in text, text
        for missing in ({"of": "unmetal_conform"}, {"source": "a.cu"}):
            code, text = found_in_commands(commands, " ".join(compiled), **missing)
            assert code == 1 and "has no source of unmetal\n" in text, text
    assert check()[0] == 1


if __name__ == "__main__":
    main()
