"""CONFIG_FILE: broken files change nothing and say where they are wrong."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from polydevice.errors import KernelBuildError, OptionValueError
from tests.gpu.custom import DEFINES, SCALE_CL, layer, relu, run, write_files


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "layers"
    folder.mkdir()
    return write_files(folder)


def test_source_that_does_not_compile_shows_the_compilers_words(core, files) -> None:
    (files / "scale.cl").write_text(SCALE_CL.replace("FACTOR", "NO_SUCH_THING"))
    with pytest.raises(KernelBuildError, match="NO_SUCH_THING"):
        run(core, files)


BAD = {
    "no XML": ("<CustomLayer", "no valid XML", 1),
    "other root": ("<Layer/>", "Layer instead of CustomLayer", 1),
    "entity": ('<!DOCTYPE a [<!ENTITY b "c">]><CustomLayer/>', "", 1),
    "no name": (layer().replace('name="ReLU"', ""), "attribute name", 2),
    "type": (layer().replace("SimpleGPU", "MultiGPU"), "legal: SimpleGPU", 2),
    "version": (layer().replace('version="1"', 'version="2"'), "version='2'; legal: 1", 2),
    "no kernel": (re.sub("<Kernel.*</Kernel>", "", layer()), "needs one Kernel", 2),
    "no buffers": (re.sub("<Buffers.*</Buffers>", "", layer()), "needs one Buffers", 2),
    "no entry": (layer().replace('entry="scale"', ""), "attribute entry", 3),
    "no source": (re.sub("<Source[^>]*>", "", layer()), "needs a Source", 3),
    "lost source": (layer(source="lost.cl"), "lost.cl': source file 'lost.cl' cannot be opened", 3),
    "define": (layer(defines='<Define name="A B"/>'), "no name in OpenCL C", 3),
    "format": (layer().replace("BFYX", "BXYF"), "legal: BFYX, BYXF, FYXB, YXFB, ANY", 4),
    "mixed case": (layer().replace('format="BFYX"', 'format="Bfyx"'), "legal: BFYX", 4),
    "kind": (layer().replace('"output"', '"both"'), "legal: input, output", 4),
    "no index": (layer().replace('arg-index="1"', ""), "attribute arg-index", 4),
    "gap": (layer().replace('arg-index="1"', 'arg-index="2"'), "needed are 0, 1", 4),
    "negative": (layer().replace('port-index="0"', 'port-index="-1"'), "0 or more", 4),
    "data": (layer(tensors='<Data arg-index="0" name="w"/>'), "Data buffers are not possible", 4),
    "sizes": (layer(sizes='<WorkSizes global="B*Q"/>'), "'Q' is neither", 6),
    "parenthesis": (layer(sizes='<WorkSizes global="(B"/>'), "not closed", 6),
    "zero": (layer(sizes='<WorkSizes global="B/0"/>'), "division by zero", 6),
    "dim": (layer(sizes='<WorkSizes global="B" dim="both"/>'), "legal: output, input", 6),
    "many": (layer(sizes='<WorkSizes global="B,F,Y,X"/>'), "at most 3", 6),
}


@pytest.mark.parametrize(("text", "reason", "line"), BAD.values(), ids=BAD)
def test_broken_file_says_where_and_changes_nothing(core, files, text, reason, line) -> None:
    core.set_config({"CONFIG_FILE": str(files / "good.xml")}, "GPU")
    (files / "bad.xml").write_text(text)
    both = f"{files / 'good.xml'} {files / 'bad.xml'}"
    with pytest.raises(OptionValueError) as caught:
        core.set_config({"CONFIG_FILE": both, "PERF_COUNT": "YES"}, "GPU")
    assert f"bad.xml, line {line}: " in str(caught.value)
    assert reason in str(caught.value)
    assert core.get_config("GPU", "CONFIG_FILE") == str(files / "good.xml")
    assert core.get_config("GPU", "PERF_COUNT") == "NO"


def test_file_that_vanishes_after_it_was_set(core, files) -> None:
    """Whatever needs it then says which key and file, and other keys stay as they were."""
    core.set_config({"CONFIG_FILE": str(files / "good.xml")}, "GPU")
    (files / "good.xml").unlink()
    with pytest.raises(OptionValueError, match=r"CONFIG_FILE=.*good.xml' does not exist"):
        core.load_network(core.read_network(relu()), "GPU")
    with pytest.raises(OptionValueError, match=r"CONFIG_FILE=.*good.xml' does not exist"):
        core.set_config({"PERF_COUNT": "YES"}, "GPU")
    core.set_config({"CONFIG_FILE": ""}, "GPU")
    core.load_network(core.read_network(relu()), "GPU")


def test_missing_file(core, files) -> None:
    with pytest.raises(OptionValueError, match=r"lost.xml' does not exist"):
        core.set_config({"CONFIG_FILE": str(files / "lost.xml")}, "GPU")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('port-index="0" format', 'port-index="3" format', 1), "there is no input 3"),
        (('<WorkSizes global="B*F*Y*X"/>', '<WorkSizes global="B-2"/>', 1), "1 or more"),
        (('<WorkSizes global="B*F*Y*X"/>', '<WorkSizes global="X" local="2"/>', 1), "multiples"),
        (
            ('<WorkSizes global="B*F*Y*X"/>', '<WorkSizes global="X" dim="input,1"/>', 1),
            "no input 1",
        ),
    ],
)
def test_what_does_not_fit_the_operation_is_said_when_loading(core, files, change, reason) -> None:
    (files / "good.xml").write_text(layer(defines=DEFINES).replace(*change))
    with pytest.raises(OptionValueError, match=reason):
        run(core, files)


Y = np.random.default_rng(2).integers(-40, 40, (1, 1, 5, 7)).astype(np.float32) / 8


SECRET = "root:x:0:0"


@pytest.fixture
def secret(files):
    """A file outside of the folder of custom layers."""
    path = files.parent / "secret.txt"
    path.write_text(SECRET)
    return path


def linked(files, secret) -> str:
    (files / "linked.cl").symlink_to(secret)
    return "linked.cl"


def hard_linked(files, secret) -> str:
    (files / "hard.cl").hardlink_to(secret)
    return "hard.cl"


def pipe(files, _) -> str:
    os.mkfifo(files / "pipe.cl")
    return "pipe.cl"


def linked_folder(files, secret) -> str:
    (files / "up").symlink_to(secret.parent)
    return "up/secret.txt"


def endless(files, _) -> str:
    (files / "zero.cl").symlink_to("/dev/zero")
    return "zero.cl"


OUTSIDE = [
    linked,
    hard_linked,
    pipe,
    linked_folder,
    endless,
    lambda *_: "../secret.txt",
    lambda _, secret: str(secret),
    lambda *_: "/dev/zero",
    lambda *_: "..\\secret.txt",
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", OUTSIDE)
def test_sources_lie_in_the_folder_of_the_file(core, files, secret, make) -> None:
    (files / "bad.xml").write_text(layer(source=make(files, secret)))
    with pytest.raises(OptionValueError, match=r"bad.xml, line 3: source") as caught:
        core.set_config({"CONFIG_FILE": str(files / "bad.xml")}, "GPU")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "directive",
    [
        '#include "{}"',
        "  #  include <{}>",
        '#/* */include "{}"',
        '%:include "{}"',
        '??=include "{}"',
        '#inc\\\nlude "{}"',
        '#inc??/\nlude "{}"',
        '#include_next "{}"',
        '#import "{}"',
        '#embed "{}"',
        '#ifdef A\n#endif\n#\\\r\ninclude "{}"',
    ],
)
def test_sources_include_nothing(core, files, secret, directive) -> None:
    (files / "scale.cl").write_text(directive.format(secret) + "\n" + SCALE_CL)
    with pytest.raises(OptionValueError, match="further Source") as caught:
        core.set_config({"CONFIG_FILE": str(files / "good.xml")}, "GPU")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("option", ["-I/etc", "-include", "@file", "-DA=B;C", "-fplugin=x", "x.cl"])
def test_compiler_options_name_no_files(core, files, option) -> None:
    options = f'<CompilerOptions options="-cl-mad-enable {option}"/>'
    text = layer().replace("<WorkSizes", options + "<WorkSizes")
    assert options in text
    (files / "bad.xml").write_text(text)
    with pytest.raises(OptionValueError, match="compiler option"):
        core.set_config({"CONFIG_FILE": str(files / "bad.xml")}, "GPU")


@pytest.mark.parametrize("break_", ["&#10;", "&#13;", "&#9;"])
def test_macros_have_one_line(core, files, break_) -> None:
    defines = f'<Define name="A" default="1{break_}#include x"/>'
    (files / "bad.xml").write_text(layer(defines=defines))
    with pytest.raises(OptionValueError, match="a macro has one line"):
        core.set_config({"CONFIG_FILE": str(files / "bad.xml")}, "GPU")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("key", ["CONFIG_FILE", "TUNING_FILE"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "secret", "binary", "json"])
def test_other_files_are_refused_without_their_content(core, files, secret, key, kind) -> None:
    path = files / "pipe"
    os.mkfifo(path)
    (files / "binary").write_bytes(b"\xff" + SECRET.encode())
    (files / "json").write_text(f'{{"{SECRET}": "{SECRET}"}}')
    chosen = {"pipe": path, "endless": "/dev/zero", "folder": files, "secret": secret}
    given = str(chosen.get(kind, files / kind))
    config = {key: given} | ({} if key == "CONFIG_FILE" else {"TUNING_MODE": "TUNING_USE_EXISTING"})
    with pytest.raises(OptionValueError, match=key) as caught:
        core.load_network(core.read_network(relu()), "GPU", config)
    assert SECRET not in str(caught.value)
