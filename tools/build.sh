# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the tools beside it: installs what is missing, configures, builds. Everything that is said goes to standard
# error, so that standard output belongs to the program.

root=$(readlink -f "${BASH_SOURCE[0]%/*}/..")
build_packages=(cmake g++ ninja-build libcli11-dev nlohmann-json3-dev libfmt-dev libboost-dev libeigen3-dev libyaml-cpp-dev libtomlplusplus-dev
  libhwy-dev)
# What the tests need, and the module of the mpi engine: neither is built with the program.
test_packages=(catch2 libopenmpi-dev openmpi-bin)
mpi_packages=(libopenmpi-dev openmpi-bin)

[[ ${LOCKSTEP_CMAKE_OPTIONS:-} != *LOCKSTEP_BENCHMARK=@(ON|COMPILE)* ]] || build_packages+=(libbenchmark-dev libxxhash-dev)

# use_preset PRESET: what to build (CMakePresets.json), and where.
use_preset() {
  preset=$1
  build_dir=$root/build/$preset
  if [[ -n ${LOCKSTEP_BUILD_DIR:-} ]]; then
    build_dir=$(realpath -m "$LOCKSTEP_BUILD_DIR")
    [[ $preset == release ]] || build_dir+=-$preset
  fi
}

# On a terminal it takes the line of show_progress.
say() {
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  printf 'lockstep: %s\n' "$*" >&2
}

# The environment failed: exit status 3, as everywhere in lockstep.
fail() {
  say "$@"
  exit 3
}

# apt_install PACKAGE…: installs those that are missing; where it may not, it says the command and fails.
apt_install() {
  local missing=() package sudo=() log
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  command -v apt-get >/dev/null || fail "these packages are missing (Debian's names): ${missing[*]}"
  local command="apt-get install -y --no-install-recommends ${missing[*]}"
  if [[ $EUID -ne 0 ]]; then
    sudo -n true 2>/dev/null || fail "some packages are missing. Install them with: sudo $command"
    sudo=(sudo -n)
  fi
  say "installing ${missing[*]}…"
  log=$(mktemp)
  # One at a time: apt waits for another's lock on packages, and not for that on the lists of them.
  mkdir -p "$root/build"
  exec 7>"$root/build/.apt.lock"
  flock 7
  apt() {
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -y "$@" >"$log" 2>&1 </dev/null 7>&-
  }
  local install=(apt install --no-install-recommends "${missing[@]}")
  # A fresh container has no lists of packages; elsewhere fetching them would only cost time.
  if ! "${install[@]}" && ! { apt update && "${install[@]}"; }; then
    cat "$log" >&2
    fail "the packages could not be installed. The command was: $command"
  fi
  rm "$log"
  exec 7>&-
}

# A clang that has libFuzzer's runtime, which is a package of its own.
find_clang() {
  local candidate test
  test=$(mktemp)
  for candidate in clang++-{20,19,18,17,16} clang++; do
    command -v "$candidate" >/dev/null || continue
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
      "$candidate" -x c++ -fsanitize=fuzzer,address,undefined -o "$test" - 2>/dev/null || continue
    rm "$test"
    echo "$candidate"
    return
  done
  rm "$test"
  return 1
}

# use_clang: the preset fuzz needs it. Installs it where it is missing and that may be done; fails where neither.
use_clang() {
  local clang
  clang=$(find_clang) || { (apt_install clang-16 libclang-rt-16-dev) && clang=$(find_clang); } || return
  export LOCKSTEP_CMAKE_OPTIONS="-DCMAKE_CXX_COMPILER=$clang ${LOCKSTEP_CMAKE_OPTIONS:-}"
}

# What tools/bundle packed is built where nothing can be installed: with its own headers, and with make where ninja is
# missing.
is_bundled() { [[ -d $root/third_party ]]; }

# find_nccl: the folder of an NCCL, where cmake/FindNCCL.cmake looks: include/nccl.h is in it.
find_nccl() {
  local place
  while IFS= read -r place; do
    if [[ -n $place && -e $place/include/nccl.h ]]; then
      echo "$place"
      return
    fi
  done < <(
    printf '%s\n' "${LOCKSTEP_NCCL_ROOT:-}" "${NCCL_ROOT:-}" "${NCCL_HOME:-}" "$root/build/nccl" "${CUDA_HOME:-}" /usr/local/cuda \
      /usr/local /usr
    python3 -c 'import site
for folder in site.getsitepackages() + [site.getusersitepackages()]: print(folder + "/nvidia/nccl")' 2>/dev/null
  )
  return 1
}

is_configured() {
  [[ -e $build_dir/build.ninja || -e $build_dir/Makefile ]] && grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build_dir/CMakeCache.txt"
}

run_cmake() {
  # The cache of a repository that was copied or moved belongs to the old place, that of a failed attempt to nobody.
  is_configured || rm -rf "$build_dir/CMakeCache.txt" "$build_dir/CMakeFiles"
  local options=()
  read -ra options <<<"${LOCKSTEP_CMAKE_OPTIONS:-}"
  if is_bundled && ! command -v ninja >/dev/null; then options+=(-G "Unix Makefiles"); fi
  (cd "$root" && cmake --preset "$preset" -B "$build_dir" "${options[@]}") >"$build_dir/configure.log" 2>&1 </dev/null
}

configure() {
  run_cmake && return
  if ! is_bundled; then
    # Packages are looked at only now: a machine that has everything from elsewhere needs none of Debian's.
    apt_install "${build_packages[@]}"
    run_cmake && return
  fi
  cat "$build_dir/configure.log" >&2
  fail "CMake could not configure the build"
}

# Reads what ninja or make writes; on a terminal, "[3/40] Compiling…" becomes a counter in one line, removed at the end.
show_progress() {
  local line
  while IFS= read -r line; do
    if [[ -t 2 && $line =~ ^\[([0-9]+/[0-9]+|\ *[0-9]+%)\] ]]; then
      printf '\r\033[Klockstep: building %s' "${BASH_REMATCH[0]}" >&2
    fi
  done
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
}

run_build() {
  local log=$build_dir/build.log targets=("$1") module command
  # Modules that were built before go with the program: an old one may not fit it.
  if [[ $1 == lockstep_cli ]]; then
    for module in mpi cuda nccl; do [[ ! -e $build_dir/bin/lockstep_$module.so ]] || targets+=("lockstep_$module"); done
  fi
  command=(ninja -C "$build_dir" "${targets[@]}")
  [[ -e $build_dir/build.ninja ]] || command=(make -C "$build_dir" -j "$(nproc)" "${targets[@]}")
  [[ -t 2 ]] || say "${building:-building lockstep…}"
  # Without it ccache keeps nothing of what is compiled with precompiled headers. None of the sources asks for the time.
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
  if ! "${command[@]}" 2>&1 </dev/null | tee "$log" | show_progress; then
    grep -Ev '^\[([0-9]+/[0-9]+| *[0-9]+%)\] |^(ninja|make[[0-9]*]*): (Entering|Leaving) directory' "$log" >&2
    fail "the build failed"
  fi
}

# is_current TARGET FOLDER…: nothing below the folders or in the sources is newer than the last build of the target.
# This takes milliseconds, where asking ninja takes a tenth of a second.
is_current() {
  local stamp=$build_dir/.built-$1
  shift
  [[ -e $stamp && -x $build_dir/bin/lockstep ]] || return
  local inputs=(CMakeLists.txt CMakePresets.json cmake src include kernels frameworks models build/nccl "$@")
  [[ -z $(find "${inputs[@]/#/$root/}" -newer "$stamp" -print -quit 2>/dev/null) ]]
}

# has_target TARGET: the build knows it; what was missing when it was configured has none.
has_target() {
  grep -qsE "^(build $1|$1): " "$build_dir/build.ninja" "$build_dir/Makefile"
}

# want_tests: before a build of the tests. Where something was missing when the folder was configured, it is looked for again.
want_tests() {
  is_bundled || (apt_install "${test_packages[@]}") || say "going on with what is there"
  if is_configured && ! { has_target lockstep_test_main && has_target lockstep_mpi; }; then configure; fi
}

# build_module ENGINE: the module of the engine mpi, cuda or nccl, which the program loads. Installs what is missing, where that may be done;
# where it cannot be built the program says why.
build_module() {
  case $1 in
    mpi) has_target lockstep_mpi || (apt_install "${mpi_packages[@]}") || return 0 ;;
    cuda) command -v nvcc >/dev/null || return 0 ;;
    nccl)
      command -v nvcc >/dev/null || return 0
      build_module cuda
      has_target lockstep_nccl || "$root/tools/install-nccl" || return 0
      ;;
  esac
  has_target "lockstep_$1" || configure
  if has_target "lockstep_$1"; then
    local building="building the $1 engine…"
    build "lockstep_$1"
  fi
}

# build TARGET [FOLDER…]: brings a target up to date: lockstep_cli, or all. FOLDER is read by it besides the sources.
build() {
  local target=$1
  is_current "$@" && return
  mkdir -p "$build_dir" || fail "$build_dir cannot be written to. LOCKSTEP_BUILD_DIR names another place."
  exec 9>"$build_dir/.lock"
  if ! flock --nonblock 9; then
    say "waiting for another build in $build_dir…"
    flock 9
  fi
  if ! is_current "$@"; then
    local stamp=$build_dir/.built-$target
    touch "$stamp.begun"  # so that what is edited while the compiler runs is newer
    local system=$build_dir/build.ninja
    [[ -e $system ]] || system=$build_dir/Makefile
    # An NCCL that was installed since (tools/install-nccl) is looked for anew.
    if [[ $root/CMakePresets.json -nt $system || $root/build/nccl -nt $system ]] || ! is_configured; then configure; fi
    run_build "$target"
    mv "$stamp.begun" "$stamp"
  fi
  exec 9>&-
}
