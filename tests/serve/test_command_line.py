"""What `polydevice serve` refuses before it listens."""

from __future__ import annotations

import builtins
import re
from pathlib import Path

import pytest

from polydevice.cli import main

from .running import KINDS, typed_model


@pytest.mark.parametrize(
    ("module", "words"),
    [("httptools", "needs httptools; install"), ("grpc", r"needs grpcio; install .*--no-grpc")],
)
def test_packages_that_lack(
    module: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def lacking(name: str, *rest: object) -> object:
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", lacking)
    assert main(["serve", "none.onnx"]) == 1
    assert re.search(words, capsys.readouterr().err)


def test_what_the_command_line_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "FP32.onnx"
    path.write_bytes(typed_model(KINDS["FP32"]))
    model = str(path)
    for arguments, words in (
        ([f"a={model}", f"a={model}"], "has version 1 twice"),
        ([f"a b={model}"], "cannot be served as 'a b'"),
        ([f"a:x={model}"], "is no version"),
        ([str(tmp_path / "none.onnx")], "none.onnx"),
        ([model, "--queue", "0"], "queue=0 is not possible"),
        ([model, "--host", "192.0.2.1", "--port", "0"], "cannot listen on 192.0.2.1"),
    ):
        assert main(["serve", "-d", "CPU", *arguments]) == 1
        assert words in capsys.readouterr().err
