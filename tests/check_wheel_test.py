"""check_wheel.py finds what is planted.   check_wheel_test.py CXX_COMPILER"""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import check_wheel

COMPILER = sys.argv.pop()


class CheckWheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def faults(self, source='extern "C" void PyInit__core() {}', options=(), licences=check_wheel.LICENCES, padding=0):
        (self.folder / "core.cpp").write_text(source)
        library = self.folder / "core.so"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, self.folder / "core.cpp", *options], check=True)
        wheel = self.folder / "unmetal-1-cp311-cp311-linux_x86_64.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(library, "unmetal/_core.cpython-311-x86_64-linux-gnu.so")
            for licence in licences:
                archive.writestr(f"unmetal-1.dist-info/licenses/{licence}", "text")
            archive.writestr("padding", bytes(padding))
        return list(check_wheel.faults(wheel))

    def test_right(self):
        self.assertEqual(self.faults(), [])

    def test_size(self):
        self.assertRegex(self.faults(padding=15_000_001)[0], "^it has 150..... bytes, at most 15000000 are allowed$")

    def test_openmp(self):
        self.assertEqual(self.faults(options=["-Wl,--no-as-needed", "-lgomp"]),
                         ["_core.cpython-311-x86_64-linux-gnu.so brings an OpenMP run time: libgomp.so.1"])

    def test_exports(self):
        self.assertEqual(self.faults('extern "C" void PyInit__core() {}\nvoid dnnl() {}'),
                         ["_core.cpython-311-x86_64-linux-gnu.so exports 1 symbols beside PyInit__core, such as _Z4dnnlv"])

    def test_weak_exports(self):
        source = 'extern "C" void PyInit__core() {}\n[[gnu::weak]] void %s() {}'
        self.assertEqual(self.faults(source % "standard"), [])
        self.assertEqual(len(self.faults(source % "dnnl")), 1)

    def test_licences(self):
        self.assertEqual(self.faults(licences=check_wheel.LICENCES[1:]), ["the licence oneDNN/LICENSE is missing"])


if __name__ == "__main__":
    unittest.main()
