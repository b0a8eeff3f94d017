# Shared by the scripts of this folder: sourced by them, from the repository's root.
#
# Environment: PYTHON (default python3), JOBS (default: all CPUs).

JOBS=${JOBS:-$(nproc)}
export CMAKE_BUILD_PARALLEL_LEVEL=$JOBS
# Clones, and the build folders of one clone, share what was compiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export PIP_DISABLE_PIP_VERSION_CHECK=1

# Debian 12 and 13 alike.
BUILD_PACKAGES=(
  build-essential cmake ninja-build pkg-config git ccache python3-venv python3-dev
  liburing-dev libzstd-dev libtbb-dev libjpeg-dev libturbojpeg0-dev libssl-dev
  libcurl4-openssl-dev libfmt-dev libexpected-dev nlohmann-json3-dev libxxhash-dev
  libpugixml-dev catch2
)

# The web server and the certificates of tests.
TEST_PACKAGES=(nginx-light openssl ca-certificates)

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "root or sudo is needed for: $*"
  fi
}

# need_packages NAME...: installs those that are missing; asks the network for nothing otherwise.
need_packages() {
  local name missing=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian system: the packages are taken as given ($*)"
    return
  fi
  for name in "$@"; do
    case $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) in
      installed*) ;;
      *) missing+=("$name") ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing system packages: ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  local log=build/packages.log
  mkdir -p build
  { as_root "${apt[@]}" update &&
    as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; die "apt-get failed; its output is in $log"; }
}

# The virtual environment .venv, made again when its interpreter is gone.
need_venv() {
  local python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python >= 3.11 is needed"
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv
  fi
}

pip_install() { .venv/bin/python -m pip install --quiet "$@"; }

# The requirements of extras, without headpond itself: requirements EXTRA...
requirements() {
  .venv/bin/python - "$@" <<'PY'
import sys, tomllib

with open("pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
print("\n".join(line for extra in sys.argv[1:] for line in extras[extra]))
PY
}

# What the build itself needs. Installed here, for --no-build-isolation: in an environment made for
# each build pybind11 lies somewhere else each time, and everything that includes it is compiled anew.
build_requirements() {
  .venv/bin/python - <<'PY'
import tomllib

with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["build-system"]["requires"]))
PY
}

have_torch() { .venv/bin/python -c 'import torch' 2>/dev/null; }

# torch, where there is one for this Python: the CPU build if pip's configuration knows it, else
# what the index has. Tests that need torch skip without it. WITH_TORCH=no leaves it out.
want_torch() {
  if [ "${WITH_TORCH:-yes}" = no ] || have_torch; then return; fi
  if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
    say "no torch: it is tested with Python 3.11 only"
    return
  fi
  say "installing torch"
  pip_install 'torch==2.13.0+cpu' 2>/dev/null || pip_install 'torch==2.13.0' ||
    say "no torch: pip cannot get it"
}
