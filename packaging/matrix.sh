#!/usr/bin/env bash
# Runs the tests marked `oldest_torch` with the oldest and the newest PyTorch that is claimed, each
# on the oldest Python that is claimed and on a newer one, by night. It prints a row for each pair,
# as docs/supported.md has them, and leaves out, with the reason, a pair whose Python this machine
# lacks or for which PyTorch has no wheel. One environment exists at a time. It borrows from .venv
# the CUDA libraries, which PyTorch loads and no test uses, and gradwire itself: the core knows no
# Python, and each pair compiles its own binding.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pythons=(3.10 3.13)
lists=(requirements-oldest.txt requirements.txt)
packages_of() { "$1/bin/python" -c 'import site; print(site.getsitepackages()[0])'; }
lender=$(packages_of .venv)
place=target/matrix
trap 'rm -rf "$place"' EXIT

# The first interpreter of this version that runs: on the path, or among those of pyenv.
python_of() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c pass 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# The packages of these lists whose names the pattern fits, as pip takes them.
pinned() {
    local pattern=$1
    shift
    sed -nE "s/^(($pattern)==[^ ]*)$/\1/p" "$@"
}

# Installs PyTorch, gradwire as .venv has it, and the needs of the tests. These and those of PyTorch
# come in the newest version for this Python: the pinned ones are for another one.
install() {
    local python=$1 list=$2
    rm -rf "$place"
    "$python" -m venv "$place"
    local pip=("$place/bin/python" -m pip --disable-pip-version-check install -q --no-compile)
    cp -rs "$lender/nvidia" "$(packages_of "$place")"
    "${pip[@]}" --no-deps $(pinned 'torch|nvidia-curand' "$list") || return 2
    "${pip[@]}" filelock fsspec jinja2 networkx numpy sympy typing_extensions \
        expecttest jsonschema pytest pyyaml \
        $(pinned 'ninja|setuptools' requirements.txt)
    cp -r "$lender"/gradwire "$lender"/gradwire-*.dist-info "$(packages_of "$place")"
    rm -rf "$(packages_of "$place")"/gradwire/_native/torch-*
    "$place/bin/python" -m gradwire.build
}

failed=0
row() { printf '| %s | %s | %s |\n' "$@"; }
row PyTorch Python 'result'
row --- --- ---
for list in "${lists[@]}"; do
    torch=$(pinned torch "$list")
    for version in "${pythons[@]}"; do
        log=target/matrix-$version-${torch#torch==}.log
        if ! python=$(python_of "$version"); then
            row "${torch#torch==}" "$version" 'left out: this machine lacks the Python'
            continue
        fi
        set +e
        (set -e && install "$python" "$list") >"$log" 2>&1
        status=$?
        set -e
        if [ $status = 2 ] && grep -q 'No matching distribution' "$log"; then
            row "${torch#torch==}" "$version" 'left out: PyTorch has no wheel for it'
            continue
        fi
        [ $status = 0 ] && "$place/bin/python" -m pytest -q -m oldest_torch >>"$log" 2>&1 ||
            status=1
        row "${torch#torch==}" "$("$python" -c 'import sys; print(sys.version.split()[0])')" \
            "$(tail -n 1 "$log")"
        [ $status = 0 ] || { failed=1 && echo "see $log" >&2; }
    done
done
exit $failed
