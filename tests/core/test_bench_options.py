"""Options of ``polydevice bench``: which there are, what they mean, and what is refused."""

from __future__ import annotations

import argparse
import re

import pytest

from polydevice.benchmark.measure import Statistics
from polydevice.benchmark.options import configuration
from polydevice.benchmark.options.arguments import (
    Limits,
    add_arguments,
)
from polydevice.benchmark.options.texts import (
    parse_channels,
    parse_data_shapes,
    parse_names,
    parse_shapes,
    parse_values,
)
from polydevice.benchmark.report import closing_lines, counter_lines
from polydevice.cli import main
from polydevice.errors import OptionValueError
from polydevice.shape import Dim
from tests.core.bench_model import MODEL, QUICK, dynamic


def test_percentiles_are_nearest_rank():
    statistics = Statistics(tuple(float(i) for i in range(1, 101)), 100, 1000.0, 2, True)
    assert [statistics.percentile(p) for p in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert statistics.throughput == 200
    assert Statistics((4.0,), 1, 100.0, 2, False).throughput == 500


def test_closing_lines():
    statistics = Statistics((1.0, 2.0, 3.0), 3, 6.0, 1, False)
    lines = closing_lines(statistics, 50)
    assert lines[0] == "Count:      3 iterations"
    assert lines[1] == "Duration:   6.00 ms"
    assert lines[2] == "Latency:    2.00 ms"
    assert lines[-1] == "Throughput: 500.00 FPS"
    assert closing_lines(statistics, 90)[2] == "Latency (90 percentile): 3.00 ms"


def test_shapes():
    assert parse_shapes("[1,3,2]", ["a", "b"]) == {"a": [1, 3, 2], "b": [1, 3, 2]}
    assert parse_shapes("a[1, 3],b[]", ["a", "b"]) == {"a": [1, 3], "b": []}
    with pytest.raises(OptionValueError, match="names 'c'.*a, b"):
        parse_shapes("c[1]", ["a", "b"])
    with pytest.raises(OptionValueError, match="not legal"):
        parse_shapes("1,3", ["a"])


def test_names():
    assert parse_names("a:U8, b[NHWC]", ["a", "b"], "-iop") == {"a": "U8", "b": "NHWC"}
    with pytest.raises(OptionValueError, match="-iop names 'c'; known: a"):
        parse_names("c:U8", ["a"], "-iop")
    with pytest.raises(OptionValueError, match="'U8' is not legal"):
        parse_names("U8", ["a"], "-iop")


def test_precisions_layouts_and_extensions_by_name(capsys):
    model = ["-m", str(MODEL), "-niter", "1", "-api", "sync"]
    extra = ["-iop", "input:U8,output:FP16", "-layout", "input[NHWC]", "-stream_output"]
    assert main(["bench", *model, *extra]) == 0
    out = capsys.readouterr().out
    assert "'input': precision U8" in out
    assert "'output': precision FP16" in out
    assert "measuring: 100 %" in out
    assert main(["bench", *model, "-l", "no_such_module"]) == 1
    assert "'no_such_module' cannot be imported" in capsys.readouterr().err


def test_names_and_channels_for_all_inputs():
    assert parse_names("[NHWC]", ["a", "b"], "-layout") == {"a": "NHWC", "b": "NHWC"}
    assert parse_channels("[1, 2.5]", ["a", "b"], "-imean") == {"a": [1, 2.5], "b": [1, 2.5]}
    assert parse_channels("a[1e2],b[-1,2]", ["a", "b"], "-imean") == {"a": [100], "b": [-1, 2]}
    for text in ("1,2", "a[x]", "a[]", "[1,,2]"):
        with pytest.raises(OptionValueError, match="is not legal"):
            parse_channels(text, ["a"], "-imean")
    with pytest.raises(OptionValueError, match="-iscale names 'c'"):
        parse_channels("c[1]", ["a"], "-iscale")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["-qb", "8"], "-qb 8 has no effect: it is for GNA"),
        (["-c", "layers.xml"], "-c is for GPU; CPU has no key CONFIG_FILE"),
    ],
)
def test_options_without_a_meaning_here_say_so(given, said, capsys):
    assert main([*QUICK, *given]) == 0
    assert said in capsys.readouterr().out


def test_options_that_change_a_network_that_is_not_read_say_so(capsys):
    # fails later, as the model's batch is dynamic
    main([*QUICK, "-lfile", "-b", "1", "-iop", "input:U8"])
    assert "--batch_size, --input_output_precision: without effect" in capsys.readouterr().out


def test_options_that_are_not_legal():
    for given in (["-pin", "MAYBE"], ["-qb", "4"], ["-niter", "-1"], ["--latency_percentile", "0"]):
        with pytest.raises(SystemExit):
            main([*QUICK, *given])


def test_every_option_of_benchmark_app_is_there(capsys):
    """The names of its help, short and long."""
    names = """-h --help -m --path_to_model -i --paths_to_input -d --target_device
        -l --path_to_extension -c --path_to_cldnn_config -hint --perf_hint -api --api_type
        -niter --number_iterations -nireq --number_infer_requests -b --batch_size -t --time
        -progress --progress -stream_output --stream_output -shape --shape -layout --layout
        -nstreams --number_streams --latency_percentile -enforcebf16 --enforce_bfloat16
        -nthreads --number_threads -pin --infer_threads_pinning -exec_graph_path
        --exec_graph_path -pc --perf_counts -report_type --report_type -report_folder
        --report_folder -dump_config --dump_config -load_config --load_config -qb
        --quantization_bits -ip --input_precision -op --output_precision -iop
        --input_output_precision -cdir --cache_dir -lfile --load_from_file -imean --mean_values
        -iscale --scale_values"""
    with pytest.raises(SystemExit) as ended:
        main(["bench", "-h"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w]*", out))
    assert set(names.split()) <= known
    assert re.search(r"Available target devices: .*CPU", out)


def test_streams_of_a_device_that_has_none(capsys):
    assert main([*QUICK, "-d", "HETERO:CPU", "-nstreams", "CPU:1"]) in (0, 1)
    with pytest.raises(OptionValueError, match="-nstreams NPU:2: NPU has no key NPU_THROUGHPUT"):
        options = argparse.Namespace(number_streams="NPU:2", api="async", perf_hint=None)
        configuration._streams(options, "NPU", {"PERF_COUNT"})


def test_streams():
    assert parse_values("4", ["CPU", "GPU"], "-nstreams") == {"CPU": "4", "GPU": "4"}
    assert parse_values("CPU:2,GPU:4", ["CPU", "GPU"], "-nstreams") == {"CPU": "2", "GPU": "4"}
    with pytest.raises(OptionValueError, match="NPU"):
        parse_values("NPU:2", ["CPU"], "-nstreams")


def test_limits_round_up_to_the_requests():
    class Options:
        number_iterations, time, api = 10, None, "async"

    assert Limits.of(Options, 4) == Limits(12, None)  # type: ignore[arg-type]
    Options.number_iterations = None  # type: ignore[assignment]
    assert Limits.of(Options, 4) == Limits(None, 60.0)  # type: ignore[arg-type]
    assert Limits.of(Options, 4, "HETERO:GPU,CPU").seconds == 60  # type: ignore[arg-type]
    assert Limits.of(Options, 4, "NPU").seconds == 120  # type: ignore[arg-type]


def openvino_options() -> list[argparse.Action]:
    """The options of the benchmark_app of the OpenVINO that is installed."""
    parameters = pytest.importorskip("openvino.tools.benchmark.parameters")
    return list(parameters.parse_args()._actions)


def test_every_option_of_openvinos_benchmark_app_is_taken() -> None:
    """By each of its names, with each of its choices, with a value and without where it may."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    known = {name: action for action in parser._actions for name in action.option_strings}
    for theirs in openvino_options():
        for name in theirs.option_strings:
            assert name in known, f"{name} is not there"
            ours = known[name]
            for choice in theirs.choices or ():
                assert ours.choices is None or choice in ours.choices, (name, choice)
            if theirs.nargs == "?" and name not in ("-h", "--help"):
                assert ours.nargs == "?", f"{name} may stand without a value"
                for value in ("True", "false", "yes"):
                    parser.parse_args(["-m", "x", name, value])
            elif theirs.nargs is None:
                assert ours.nargs is None, f"{name} takes a value"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("-inferences_only", "-inference_only"),
        ("--perf_countz", "--perf_counts"),
        ("-nthread=2", ""),
    ],
)
def test_unknown_options_are_refused(given, near, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*QUICK, given])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"unknown option {given.partition('=')[0]}." in error
    assert near in error


def test_a_missing_model_is_said_before_anything_else(capsys) -> None:
    assert main(["bench", "-m", "nothing.xml", "-d", "NPU", "-shape", "nonsense"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "polydevice: model file 'nothing.xml' does not exist\n"


def test_shapes_that_are_not_known() -> None:
    found = parse_shapes("[?,3,1..8,2..,..9,-1]", ["a"])["a"]
    assert found == [None, 3, Dim(1, 8), Dim(2, None), Dim(0, 9), None]
    for wrong in ("[a]", "[8..1]", "[1.5]", "[1][2]"):
        with pytest.raises(OptionValueError, match="-shape"):
            parse_shapes(wrong, ["a"])
    assert parse_data_shapes("a[1,2][3,4],b[5][6]", ["a", "b"]) == {
        "a": [[1, 2], [3, 4]],
        "b": [[5], [6]],
    }
    with pytest.raises(OptionValueError, match="-data_shape"):
        parse_data_shapes("[1,?]", ["a"])


def test_orders_of_counters() -> None:
    def row(index: int, time: int, status: str = "EXECUTED") -> dict[str, object]:
        return {
            "execution_index": index, "real_time": time, "cpu_time": time, "status": status,
            "layer_type": "T", "exec_type": "E",
        }  # fmt: skip

    counters = {"a": row(0, 5), "b": row(1, 9), "c": row(2, 0, "OPTIMIZED_OUT")}

    def names(order: str) -> str:
        return "".join(line[0] for line in counter_lines(counters, order)[:-2])

    assert [names(order) for order in ("", "no_sort", "sort", "simple_sort")] == [
        "abc", "abc", "bac", "ab",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["-max_irate", "-5"], "-5 is not possible; use a number from 0"),
        (["-max_irate", "nan"], "nan is not possible; use a number from 0"),
        (["-niter", "x"], "x is not possible; use 0 or more"),
        (["-t", "soon"], "soon is not possible; use a number of seconds above 0"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(given, said, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "-m", "x.xml", *given])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [["-json"], ["-dump_config"], ["-exec_graph_path"], ["-report_type", "no_counters"]],
    ids=" ".join,
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(given, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    option = "-report_folder" if "-report_type" in given else given.pop()
    given += [option, str(tmp_path / "file" / "inside")]
    assert main(["bench", "-m", str(dynamic(tmp_path)), "-niter", "1", *given]) == 1
    done = capsys.readouterr()
    assert f"{option} " in done.err
    assert "cannot be made" in done.err
    assert "[Step" not in done.out


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"CPU": 3}', None])
def test_a_configuration_that_is_none_is_refused(text, tmp_path, capsys) -> None:
    path = tmp_path / "configuration.json"
    if text is not None:
        path.write_text(text)
    arguments = ["-m", str(dynamic(tmp_path)), "-niter", "1", "-load_config", str(path)]
    assert main(["bench", *arguments]) == 1
    assert f"-load_config {str(path)!r}" in capsys.readouterr().err
