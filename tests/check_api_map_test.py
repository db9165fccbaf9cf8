#!/usr/bin/env python3
"""Proves that tests/check_api_map.py notices lies: every row of docs/api-map.md is changed into some, one at a time."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import check_api_map

MAP = (check_api_map.ROOT / "docs" / "api-map.md").read_text()
ROWS = check_api_map.rows_of(MAP)
OURS, HEADER, TEST, BACK_ENDS = range(1, 5)


def changed(cells: list[str], column: int, value: str) -> list[str]:
    return [*cells[:column], value, *cells[column + 1:]]


class Lies(unittest.TestCase):
    def expect_problem(self, cells: list[str], words: str) -> None:
        with self.subTest(row=cells):
            self.assertIn(words, check_api_map.problem(cells) or "nothing")

    def test_the_map_has_none(self):
        self.assertGreater(len(ROWS), 400)
        for cells in ROWS:
            self.assertIsNone(check_api_map.problem(cells), cells[0])

    def test_of_what_is_there(self):
        for cells in filter(lambda cells: cells[OURS], ROWS):
            self.expect_problem(changed(cells, TEST, ""), "names no test")
            self.expect_problem(changed(cells, TEST, "mps/core/no_such_test.cpp"), "no test that every build has")
            self.expect_problem(changed(cells, TEST, "mps/core/types/float16_test.cpp"), "does not use")
            self.expect_problem(changed(cells, HEADER, "mtl/error.hpp"), "does not declare")
            self.expect_problem(changed(cells, HEADER, "mps/core/no_such_header.hpp"), "no header")
            self.expect_problem(changed(cells, BACK_ENDS, "CUDA"), "back ends")
            self.expect_problem(changed(cells, OURS, ""), "neither ours nor out")

    def test_of_the_namespace(self):
        for cells in filter(lambda cells: cells[OURS], ROWS):
            is_mtl = "`mtl::" in cells[OURS]
            other = cells[OURS].replace("mtl::", "mps::") if is_mtl else cells[OURS].replace("mps::", "mtl::")
            self.expect_problem(changed(cells, OURS, other), "in the namespace of")
        wrapper = ["`mps::CommandBuffer`", "mps/core/kernel/command_buffer.hpp", "mps/core/kernel/command_buffer_test.cpp", ""]
        self.expect_problem(["MTLCommandBuffer", *wrapper], "in the namespace of")
        region = ["`mtl::Region`", "mtl/types.hpp", "mps/core/image/image_transfer_test.cpp", ""]
        self.expect_problem(["MPSRegion", *region], "in the namespace of")

    def test_of_another_name(self):
        add = next(cells for cells in ROWS if cells[0] == "MPSCNNAdd")
        self.expect_problem(["MPSCNNLoss", *add[1:]], "is not its name without the prefix")

    def test_of_what_is_out(self):
        for cells in filter(lambda cells: not cells[OURS], ROWS):
            for reason in ("", "out", "out:", "not yet"):
                self.expect_problem(changed(cells, BACK_ENDS, reason), "neither ours nor out")
        self.expect_problem(["MPSCNNPooling", "", "", "", "out: we say so"], "class CNNPooling is there")

    def test_d20_recurrent_layers_are_out(self):
        recurrent = [cells for cells in ROWS if re.match(r"MPS(RNN|GRU|LSTM)", cells[0])]
        self.assertGreaterEqual(len(recurrent), 13)
        for cells in recurrent:
            self.assertEqual(cells[1:], ["", "", "", "out: recurrent layers come later (spec decision D20)"])
            self.assertIsNone(check_api_map.problem(cells))

    def test_of_where_a_name_is(self):
        nested = ["MPSResource", "`mps::Resource`", "mps/core/image/state.hpp", "mps/core/image/state_test.cpp", ""]
        self.expect_problem(nested, "does not declare")  # inside of a class
        self.assertFalse(check_api_map.uses("// Pooling\n#include <Pooling>\nPoolings x;", "Pooling"))
        self.assertTrue(check_api_map.uses("mps::Pooling x;  // Pooling", "Pooling"))
        on_gpus = ["MTLBuffer", "`mtl::Buffer`", "mtl/buffer.hpp", "mtl/cuda/device_test.cpp", ""]
        self.expect_problem(on_gpus, "no test that every build has")

    def test_the_program_fails_when_one_row_loses_its_test(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("mps", "mtl", "unmetal.hpp"):
                (root / name).symlink_to(check_api_map.ROOT / name)
            (root / "docs").mkdir()
            for text, status in ((MAP, 0), (MAP.replace(" mps/pooling/check/pooling_test.cpp |", " |", 1), 1)):
                (root / "docs" / "api-map.md").write_text(text)
                run = subprocess.run([sys.executable, "-B", check_api_map.__file__, folder],
                                     capture_output=True, text=True)
                self.assertEqual(run.returncode, status, run.stdout)
            self.assertIn("names no test", run.stdout)
            without = "".join(line for line in MAP.splitlines(keepends=True) if "| MPSCNNPoolingMax |" not in line)
            (root / "docs" / "api-map.md").write_text(without)
            run = subprocess.run([sys.executable, "-B", check_api_map.__file__, folder], capture_output=True, text=True)
            self.assertEqual(run.returncode, 1)
            self.assertIn("MPSCNNPoolingMax: has no row", run.stdout)


if __name__ == "__main__":
    unittest.main()
