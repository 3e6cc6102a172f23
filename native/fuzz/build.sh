# Sourced by scripts/fuzz and scripts/fuzz-replay, from the root of the repository: what the targets are, and how they are built.

targets() { (cd native/fuzz && ls -- *.cc) | sed -n '/^replay/!s/\.cc$//p'; }

# The targets that take a TensorProto start from all of them, and those that take Examples share theirs.
corpus() {
  case $1 in
    scan_tensor | match_dense | typed | string_vals) echo native/fuzz/corpus/{scan_tensor,match_dense,typed,string_vals} ;;
    example_decode | example_survey) echo native/fuzz/corpus/example_decode ;;
    example_compat) echo native/fuzz/corpus/{example_decode,example_compat} ;;
    *) echo "native/fuzz/corpus/$1" ;;
  esac
}

compile() {  # OBJECT SOURCE, unless nothing has changed; a missing object makes `find` complain, which counts as a change
  [[ -n $(find "$2" native/src/*.h native/fuzz/*.h native/fuzz/build.sh -newer "$1" 2>&1) ]] || return 0
  echo "compiling $2"
  # shellcheck disable=SC2086  # FLAGS is a list
  $CXX -std=c++20 -g -Wall -Wextra $FLAGS -Inative/src -c "$2" -o "$1"
}

link() {  # TARGET, with every kernel, so that a new one needs no line here
  local source objects=("$OUT/fuzz/$1.o" ${MAIN:+"$OUT/fuzz/$MAIN.o"})
  for source in native/src/*.cc; do objects+=("$OUT/src/$(basename "$source" .cc).o"); done
  # shellcheck disable=SC2086
  $CXX $FLAGS "${objects[@]}" -o "$OUT/$1"
}

# build OUT CXX FLAGS [MAIN]: MAIN is the file with main(), where the compiler does not bring one. Two compilers at a time.
build() {
  export OUT=$1 CXX=$2 FLAGS=$3 MAIN=${4-}
  export -f compile link
  mkdir -p "$OUT/src" "$OUT/fuzz"
  local source
  for source in native/src/*.cc $(targets | sed 's|.*|native/fuzz/&.cc|') ${MAIN:+native/fuzz/$MAIN.cc}; do
    echo "$OUT/$(basename "$(dirname "$source")")/$(basename "$source" .cc).o $source"
  done | xargs -P 2 -L 1 bash -c 'compile "$@"' - || exit 1
  targets | xargs -P 2 -I{} bash -c 'link {}' || exit 1
}
