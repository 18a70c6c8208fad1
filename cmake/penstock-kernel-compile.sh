#!/bin/sh
# penstock-kernel-compile.sh [LAUNCHER] COMPILER ARGUMENTS...: compiles one source of a target that
# has kernels. penstock_add_kernels() makes it the target's compiler launcher.
#
# It runs the command unchanged. Only if that fails, and the source is a .cu file, the preprocessed
# text goes through penstock-kernel-source.awk. This rewrites `extern __shared__ T name[];` as C++,
# and reports what C++ cannot express: kernel launches, textures, inline PTX. The compiler then runs
# on that text, or its first errors are shown below the report.
set -u

source= object= skip=
for word; do
    case $skip$word in
    -o*) [ -n "$skip" ] && object=$word ;;
    esac
    skip=
    case $word in
    *.cu) source=$word ;;
    -o) skip=-o ;;
    esac
done
if [ -z "$source" ] || [ -z "$object" ]; then
    exec "$@"
fi

errors=$object.errors text=$object.penstock.ii
trap 'rm -f "$errors" "$text.all" "$text"' EXIT
"$@" 2>"$errors"
status=$?
if [ $status -eq 0 ]; then
    cat "$errors" >&2
    exit 0
fi

# Builds the command that preprocesses, without launchers before the compiler, whose caches would
# not help.
preprocess() {
    skip=
    for word; do
        shift
        if [ -n "$skip" ]; then
            skip=
            continue
        fi
        case $word in
        -c | -fpch-preprocess) continue ;;
        -o) skip=1 ;;
        *) set -- "$@" "$word" ;;
        esac
    done
    "$@" -E -o "$text.all" 2>/dev/null
}
# Builds the command that compiles $text, which includes nothing; dependencies are known by then.
compile() {
    skip=
    for word; do
        shift
        if [ -n "$skip" ]; then
            skip=
            continue
        fi
        case $word in
        -include | -x | -MT | -MF | -MQ) skip=1 ;;
        -MD | -MMD | -fpch-preprocess) ;;
        "$source") set -- "$@" -x c++-cpp-output "$text" ;;
        *) set -- "$@" "$word" ;;
        esac
    done
    "$@"
}

if ! preprocess "$@"; then
    cat "$errors" >&2
    exit $status
fi
if awk -f "$(dirname "$0")/penstock-kernel-source.awk" "$text.all" >"$text"; then
    compile "$@"
    exit
fi
cat "$errors" >&2
exit $status
