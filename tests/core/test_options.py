"""Options: validation, aliases, read-back, error texts."""

from __future__ import annotations

import warnings
from typing import Literal

import pytest

from polydevice.errors import OptionValueError, UnknownOptionError
from polydevice.options import Flag, Options, option


class Sample(Options):
    priority: int = option(
        "GPU_PLUGIN_PRIORITY", 0, ge=0, le=3, aliases=("CLDNN_PLUGIN_PRIORITY",), help="Priority."
    )
    perf_count: Flag = option("PERF_COUNT", False, help="Counters.")
    mode: Literal["TUNING_DISABLED", "TUNING_CREATE"] = option(
        "TUNING_MODE", "TUNING_DISABLED", help="Tuning."
    )
    folder: str = option("CACHE_DIR", "", help="Folder.")
    files: str = option("FILES", "", adds=True, help="Files.")


def test_defaults_and_read_back():
    options = Sample()
    assert options.read("PERF_COUNT") == "NO"
    assert options.read("GPU_PLUGIN_PRIORITY") == options.read("CLDNN_PLUGIN_PRIORITY") == "0"
    changed = options.updated({"KEY_PERF_COUNT": "YES", "GPU_PLUGIN_PRIORITY": "2"})
    assert changed.perf_count is True
    assert changed.read("GPU_PLUGIN_PRIORITY") == "2"
    assert options.read("PERF_COUNT") == "NO", "the original does not change"


def test_alias_warns_and_reads_back_under_both_names():
    with pytest.warns(DeprecationWarning, match="use GPU_PLUGIN_PRIORITY"):
        options = Sample().updated({"CLDNN_PLUGIN_PRIORITY": "3"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert options.read("CLDNN_PLUGIN_PRIORITY") == "3"
        assert options.updated({"GPU_PLUGIN_PRIORITY": 1}).priority == 1


def test_alias_and_successor_that_disagree():
    with pytest.raises(OptionValueError, match="different values"):
        Sample().updated({"CLDNN_PLUGIN_PRIORITY": "1", "GPU_PLUGIN_PRIORITY": "2"})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("GPU_PLUGIN_PRIORITY", "4", ["GPU_PLUGIN_PRIORITY='4'", "0 to 3"]),
        ("GPU_PLUGIN_PRIORITY", "3x", ["'3x'", "0 to 3"]),
        ("PERF_COUNT", "yes", ["PERF_COUNT='yes'", "YES, NO"]),
        ("PERF_COUNT", "1", ["YES, NO"]),
        ("TUNING_MODE", "CREATE", ["'CREATE'", "TUNING_DISABLED, TUNING_CREATE"]),
        ("CACHE_DIR", 5, ["CACHE_DIR=5", "text"]),
    ],
)
def test_bad_values_name_key_value_and_legal_values(key, value, words):
    with pytest.raises(OptionValueError) as caught:
        Sample().updated({key: value})
    for word in words:
        assert word in str(caught.value)


def test_unknown_key_names_the_nearest():
    with pytest.raises(UnknownOptionError, match="'PERF_COUNTS'.*Did you mean 'PERF_COUNT'"):
        Sample().updated({"PERF_COUNTS": "YES"})
    with pytest.raises(UnknownOptionError, match=r"Legal: ACCURACY_GUARD, .*CACHE_DIR"):
        Sample().read("NOTHING_LIKE_IT")


def test_all_or_nothing():
    options = Sample()
    with pytest.raises(OptionValueError):
        options.updated({"CACHE_DIR": "somewhere", "PERF_COUNT": "maybe"})
    assert options == Sample()


@pytest.mark.parametrize(
    ("config", "streams"),
    [
        ({}, 1),
        ({"PERFORMANCE_HINT": "THROUGHPUT"}, 8),
        ({"PERFORMANCE_HINT": "LATENCY"}, 1),
        ({"PERFORMANCE_HINT": "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": "3"}, 3),
        ({"PERFORMANCE_HINT": "THROUGHPUT", "GPU_PLUGIN_PRIORITY": "2"}, 2),
        ({"PERFORMANCE_HINT": "LATENCY", "GPU_PLUGIN_PRIORITY": "0"}, 0),
    ],
)
def test_hints_decide_where_no_key_does(config, streams):
    plain = Sample() if config else Sample().model_copy(update={"priority": 1})
    assert plain.updated(config).hinted("priority", throughput=8) == streams


def test_table_describes_every_key():
    rows = {row.key: row for row in Sample.table()}
    assert rows["GPU_PLUGIN_PRIORITY"].legal == "0 to 3"
    assert rows["GPU_PLUGIN_PRIORITY"].aliases == ("CLDNN_PLUGIN_PRIORITY",)
    assert rows["PERF_COUNT"].default == "NO"
    assert all(row.help for row in rows.values())
    keys = Sample.keys()
    assert "CLDNN_PLUGIN_PRIORITY" in keys


def test_configurations_given_one_after_the_other():
    """By the option that a key sets, however it is written."""
    earlier = {"PERF_COUNT": "YES", "FILES": "a b", "CACHE_DIR": "here"}
    later = {"KEY_PERF_COUNT": "NO", "KEY_FILES": "c a"}
    made = Sample().updated(Sample.merged(earlier, later))
    assert (made.perf_count, made.files, made.folder) == (False, "b c a", "here")
    assert Sample.merged(earlier, {"KEY_FILES": ""})["KEY_FILES"] == ""
    for wrong in ({"FILE": "c"}, {3: "c"}):
        with pytest.raises(UnknownOptionError):
            Sample.merged(earlier, wrong)
