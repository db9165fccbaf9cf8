"""The Python lines of the README run and print what they say."""

import pathlib
import re

README = pathlib.Path(__file__).resolve().parents[3] / "README.md"


def test_its_python_lines(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes a file
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], str(README), "exec"), {})
    assert len(blocks[0].splitlines()) <= 20
    assert capsys.readouterr().out.endswith("this is a Ankle boot\nmore than 85 % are right: True\n")
