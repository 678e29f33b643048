#!/usr/bin/env bash
# Runs the tests of this folder: rendered switch configurations against the platforms' own models.
# Building libyang takes headers of pcre2, and the second opinion is Debian's yanglint; both are
# fetched from Debian by name and unpacked under target/tools, never installed, so that this works
# without root. Where Debian cannot be reached, the tests are left out, and that is said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

packages=(libpcre2-dev libpcre2-8-0 libpcre2-16-0 libpcre2-32-0 libpcre2-posix3
    libyang2 libyang2-tools)
debian="$PWD/target/tools/debian"
root="$debian/root"

leave_out() {
    echo "left out: models of switches: $1"
    exit 0
}

# Package lists of our own, for machines that have none: an image is often cleaned of them.
own_lists() {
    mkdir -p "$debian/state/lists/partial" "$debian/cache/archives/partial"
    apt=(apt-get -qq -o "Dir::State=$debian/state" -o "Dir::Cache=$debian/cache"
        -o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User=root)
    "${apt[@]}" update
}

fetch() {
    rm -rf "$debian"
    mkdir -p "$debian/fetched"
    cd "$debian/fetched"
    apt=(apt-get -qq -o APT::Sandbox::User=root)
    "${apt[@]}" download "${packages[@]}" 2>"$debian/log" ||
        { own_lists && "${apt[@]}" download "${packages[@]}"; } 2>"$debian/log" || {
        cd - >/dev/null
        leave_out "apt-get cannot fetch ${packages[*]}: $(tail -n 1 "$debian/log")"
    }
    for package in *.deb; do
        dpkg-deb -x "$package" "$root.partly"
    done
    cd - >/dev/null
    mv "$root.partly" "$root"
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    leave_out 'this is no Debian: apt-get or dpkg-deb is not there'
command -v cmake >/dev/null || leave_out 'cmake is not there; requirements-test.txt has it'
[ -d "$root" ] || fetch

libraries=$(dirname "$(find "$root/usr/lib" -name libpcre2-8.so)")
export PATH="$root/usr/bin:$PATH"
export PKG_CONFIG_PATH="$libraries/pkgconfig" CMAKE_PREFIX_PATH="$root/usr"
export LIBRARY_PATH="$libraries" LD_LIBRARY_PATH="$libraries"
# The same folder as of everything else, so that most dependencies are there already.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"

cd switch-config/schemas
case "${1:-test}" in
    lint) cargo clippy --all-targets -- -D warnings ;;
    *) cargo test -- "${@:2}" ;;
esac
