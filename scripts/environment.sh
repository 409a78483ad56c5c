# Sourced by the scripts beside it. Makes .venv, installs polydevice into it, and finds OpenCL.
#
#   prepare EXTRA        .venv with polydevice[EXTRA]; a later call with nothing changed takes no time
#   prepare_opencl       an OpenCL device if one can be had; says which, and what was done for it
#   use_intel_runtime    Intel's OpenCL runtime for CPUs, from PyPI, in place of the system's
#
# POLYDEVICE_PYTHON   the Python to make .venv from (default: the newest supported one found)
# POLYDEVICE_WHEELS   a folder of wheels to install, for machines without a network

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
python=$venv/bin/python

# Where it is set, as container images like to do, every process compiles every module again: of the
# test suite's workers each spends 6 s of 13 on collecting so, and of programs each half a second.
unset PYTHONDONTWRITEBYTECODE

if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
say() { printf '%s==>%s %s\n' "$bold" "$plain" "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    say "Installing with apt-get: $*"
    DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

pythons='python3.15 python3.14 python3.13 python3.12 python3.11 python3.10 python3'

supported() {  # is this command a Python 3.10 to 3.15?
    "$1" -c 'import sys; raise SystemExit(not (3, 10) <= sys.version_info[:2] <= (3, 15))' 2>/dev/null
}

find_python() {  # prints the newest supported Python that can make virtual environments
    local candidate
    for candidate in ${POLYDEVICE_PYTHON:-$pythons}; do
        if supported "$candidate" && "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

make_venv() {
    local base package=python3-venv candidate
    if [ -x "$python" ] && supported "$python" && "$python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    if ! base=$(find_python); then
        # Debian and Ubuntu keep `venv` in a package of its own, named after the Python version.
        for candidate in ${POLYDEVICE_PYTHON:-python3 $pythons}; do
            if supported "$candidate"; then
                package=$("$candidate" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
                break
            fi
        done
        if can_apt; then
            apt_install "$package" || fail "apt-get could not install $package."
        fi
        base=$(find_python) || fail "no Python 3.10 to 3.15 that can make virtual environments." \
            "Install one:  sudo apt-get install $package   (or name one in POLYDEVICE_PYTHON)"
    fi
    say "Making .venv with $("$base" --version)"
    rm -rf "$venv"
    "$base" -m venv "$venv"
    if [ -n "${POLYDEVICE_WHEELS:-}" ]; then
        # What the base Python holds is used as it is, also when that is an environment itself.
        "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
            > "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
    fi
}

pip_install() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }

install() {  # EXTRA
    if [ -z "${POLYDEVICE_WHEELS:-}" ]; then
        pip_install -e ".[$1]"
    else  # no network: exactly these wheels, and whatever is there already
        pip_install --no-index --no-deps "$POLYDEVICE_WHEELS"/*.whl &&
            pip_install --no-index --no-deps --no-build-isolation -e .
    fi
}

prepare() {  # EXTRA
    local extra=$1 stamp want
    make_venv
    want=$({ "$python" --version; cat pyproject.toml; } | sha256sum | cut -d' ' -f1)
    for stamp in "$venv/.installed-$extra" "$venv/.installed-dev"; do  # dev holds everything
        if [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
            return
        fi
    done
    say "Installing polydevice[$extra] into .venv (the first time takes a few minutes)"
    install "$extra" || fail "pip could not install polydevice[$extra]; its message is above."
    echo "$want" > "$venv/.installed-$extra"
    # Once here, or the processes that start first compile every module each: 1.5 s of CPU time.
    "$python" -m compileall -q core plugins
    # oneDNN needs GCC's OpenMP; without it the CPU plugin runs on NumPy, slower.
    if [ "$(uname -sm)" = "Linux x86_64" ] &&
        ! "$python" -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null; then
        if ! { can_apt && apt_install libgomp1; }; then
            say "libgomp.so.1 is missing, so the CPU plugin will run on NumPy:  sudo apt-get install libgomp1"
        fi
    fi
}

opencl_devices() {  # one line for each device that computes, whatever its type; says of others why not
    POLYDEVICE_GPU_DEVICES=all-gpus,cpu,accelerator "$python" -c '
import sys
from polydevice import Core
from polydevice.errors import PolydeviceError
with Core() as core:
    for device in core.available_devices:
        try:
            if device.startswith("GPU") and core.get_metric(device, "OPTIMIZATION_CAPABILITIES"):
                print(core.get_metric(device, "FULL_DEVICE_NAME"))
        except PolydeviceError as error:
            print(f"not used: {error}", file=sys.stderr)'
}

have_opencl() {
    local found
    found=$(opencl_devices) && [ -n "$found" ] || return 1
    say "OpenCL, $1:"
    printf '%s\n' "$found" | sed 's/^/      /'
}

use_intel_runtime() {
    if [ ! -e "$venv/lib/libintelocl.so" ]; then
        say "Installing Intel's OpenCL runtime for CPUs into .venv (from PyPI, about 0.9 GB)"
        pip_install intel-opencl-rt intel-cmplr-lib-rt || return 1
    fi
    mkdir -p "$venv/opencl"
    echo "$venv/lib/libintelocl.so" > "$venv/opencl/intel.icd"
    export OCL_ICD_VENDORS=$venv/opencl
    # OpenVINO, which tests compare with, brings an older TBB of the same name; loaded first, it
    # leaves this runtime without a device. With the newer one both work.
    export LD_PRELOAD=$venv/lib/libtbb.so.12
    have_opencl "Intel's runtime for CPUs"
}

prepare_opencl() {
    if [ -n "${OCL_ICD_VENDORS:-}" ]; then
        have_opencl "drivers listed in OCL_ICD_VENDORS=$OCL_ICD_VENDORS" && return
        say "OCL_ICD_VENDORS=$OCL_ICD_VENDORS shows no OpenCL device; unset it to let this script choose."
        return
    fi
    have_opencl "as installed on this system" && return
    if [ -e "$venv/opencl/intel.icd" ]; then
        use_intel_runtime && return
    fi
    say "No OpenCL device that computes found on this system."
    if can_apt && apt_install pocl-opencl-icd; then
        have_opencl "PoCL, installed with apt-get" && return
    fi
    use_intel_runtime && return
    say "No OpenCL could be set up; going on with the CPU plugin alone." \
        "For a GPU, install its vendor's OpenCL driver; to try without one:  sudo apt-get install pocl-opencl-icd"
}
