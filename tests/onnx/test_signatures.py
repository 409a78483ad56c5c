"""The file of operators' forms: as onnx defines them, and enough to read a model."""

from __future__ import annotations

import subprocess
import sys

import onnx
import onnx.defs
import pytest
from onnx import helper

from polydevice.readers.onnx import catalog, signatures
from polydevice.readers.onnx.signatures import find_signature, signature_of
from polydevice.stems import import_stems, stem_of, stems_in
from tests.onnx.models import model, tensor

READING = """
import sys
import onnx.defs
from polydevice.readers.onnx import read_onnx

def refuse(*_):
    raise AssertionError("onnx was asked for a definition")

onnx.defs.get_schema = refuse
read_onnx(sys.argv[1])
"""


def test_the_file_is_fresh() -> None:
    lines = signatures._FILE.read_text(encoding="utf-8").splitlines()
    if f'["{onnx.__version__}"' not in lines[0]:
        pytest.skip(f"written with another onnx than {onnx.__version__}: {lines[0]}")
    assert lines == list(signatures.written(onnx.defs.get_all_schemas_with_history()))


@pytest.mark.parametrize(
    ("domain", "op_type", "version"),
    [
        *(("", "Add", 6), ("", "Add", 7), ("", "Resize", 12), ("", "LSTM", 22)),
        ("ai.onnx.ml", "Scaler", 3),
    ],
)
def test_forms(domain: str, op_type: str, version: int) -> None:
    assert find_signature(domain, op_type, version) == signature_of(
        onnx.defs.get_schema(op_type, version, domain)
    )


def test_what_there_is_not() -> None:
    assert find_signature("", "Resize", 9) is None  # came with opset 10
    assert find_signature("", "Nothing", 13) is None
    assert find_signature("com.microsoft", "Add", 1) is None


def test_newer_than_the_file() -> None:
    """Onnx is asked, which knows some more, or takes its newest form."""
    newest = signatures.newest_opset()
    assert find_signature("", "Add", newest + 1) == find_signature("", "Add", newest)


def test_reading_asks_for_no_definition(tmp_path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Concat", ["r", "x"], ["y"], axis=0),
    ]
    onnx.save(model(nodes), tmp_path / "m.onnx")
    subprocess.run(
        [sys.executable, "-c", READING, str(tmp_path / "m.onnx")], check=True, timeout=60
    )


def test_translators_that_few_models_need_are_read_for_their_operators() -> None:
    every = stems_in(catalog._OPERATORS)
    import_stems(catalog._OPERATORS, every)
    assert every > catalog.SELDOM.keys()
    used = dict.fromkeys(catalog.SELDOM, frozenset[str]())
    for (domain, op_type), versions in catalog._TABLE.items():
        for translator in versions.values():
            module = stem_of(translator)
            if module in used:
                served = catalog.SELDOM[module] & {domain, op_type}
                assert served, f"{op_type} of {domain!r} is in {module}"
                used[module] |= served
    assert used == catalog.SELDOM  # and nothing besides


READ = """
import sys
from polydevice.readers.onnx import read_onnx
read_onnx(sys.argv[1])
print(*(name for name in sys.modules if name.startswith("polydevice.readers.onnx.operators.")))
"""


def test_others_stay_unread(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    path.write_bytes(model([node], initializers=[tensor("axis", 1)]).SerializeToString())
    command = [sys.executable, "-c", READ, str(path)]
    read = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    found = {name.rpartition(".")[2] for name in read} & catalog.SELDOM.keys()
    assert found == {"signal"}
