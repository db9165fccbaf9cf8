"""check_hardening.py finds each thing that a library lacks."""

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
    done = subprocess.run([sys.executable, "-B", FOLDER / "check_hardening.py", file], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "library.so"
        assert found(sys.argv[1], file, None) == (0, "1 files, 0 findings\n")
        for name in HARDENED:
            code, text = found(sys.argv[1], file, name)
            assert code == 1 and f"{file} lacks {name}\n" in text, text


if __name__ == "__main__":
    main()
