# Rewrites a preprocessed CUDA source for g++: see penstock-kernel-compile.sh.
#
# Exit code 0: some text was rewritten, and nothing was refused. 1: the text cannot be used, and
# each refused part was printed to standard error, as file:line: error: ...
# A declaration of dynamic shared memory, on one or several lines, becomes a reference to the
# block's:
#     extern __shared__ float s[];   ->   static thread_local float (&s)[] = ...;
# It is `static thread_local`, since it may stand outside of functions: a thread runs all of its
# blocks in the same dynamic shared memory.

BEGIN {
    shared = "static thread_local __attribute__((abi_tag(\"penstock_shared\")))"
    memory = "::penstock::language::DynamicShared()"
    rewritten = refused = 0
    from_system = 1
}

# Line markers are # LINE "FILE" FLAGS. Flag 1 begins a file; flag 3 marks a system header. If a
# macro of a system header is expanded, a marker with 3 names the file that uses it, so only the
# flag at a file's begin counts. A marker inside of a declaration is left out, and printed after it.
/^# [0-9]+ "/ {
    line = $2 - 1
    file = $3
    begins = of_system = 0
    for (i = 4; i <= NF; ++i) {
        if ($i == "1") begins = 1
        if ($i == "3") of_system = 1
    }
    if (begins) system_files[file] = of_system
    from_system = system_files[file] || file ~ /\/penstock\/language\// || file ~ /^"</
    if (pending == "") print
    next
}

function refuse(text,    name) {
    name = file
    gsub(/"/, "", name)
    printf "%s:%d: error: penstock: %s\n", name, line, text > "/dev/stderr"
    refused = 1
}

# Returns the place of `word` in `text` as a separate word, or 0.
function find_word(text, word,    at, before, behind, skipped) {
    skipped = 0
    while ((at = index(text, word)) > 0) {
        before = at == 1 ? " " : substr(text, at - 1, 1)
        behind = substr(text, at + length(word), 1)
        if (before !~ /[A-Za-z0-9_]/ && behind !~ /[A-Za-z0-9_]/) return skipped + at
        skipped += at
        text = substr(text, at + 1)
    }
    return 0
}

# `extern` ... `shared` ... NAME[...];
function rewrite(declaration,    at, head, bounds, name) {
    at = index(declaration, shared)
    declaration = substr(declaration, 1, at - 1) " " substr(declaration, at + length(shared))
    at = find_word(declaration, "extern")
    declaration = substr(declaration, 1, at - 1) "static thread_local " \
                  substr(declaration, at + length("extern"))
    sub(/;[ \t]*$/, "", declaration)
    match(declaration, /[A-Za-z_][A-Za-z0-9_]*[ \t]*\[[ \t]*\]/)
    if (RSTART == 0) {
        refuse("extern __shared__ wants an array without a length: extern __shared__ float s[];")
        return declaration ";"
    }
    head = substr(declaration, 1, RSTART - 1)
    name = bounds = substr(declaration, RSTART)
    sub(/[ \t]*\[.*/, "", name)
    bounds = substr(bounds, index(bounds, "["))
    rewritten = 1
    return head "(&" name ")" bounds " = " memory ";"
}

{
    ++line
    if (from_system) {
        print
        next
    }
    code = $0
    gsub(/\\./, "", code)
    gsub(/"[^"]*"/, "\"\"", code)
    if (index(code, "<<<") > 0)
        refuse("<<<...>>> is no launch here: penstock::launch(stream, {grid, block, shared}, " \
               "kernel, arguments...) from host code; kernels cannot launch kernels")
    if (code ~ /(^|[^A-Za-z0-9_])asm([ \t]+volatile)?[ \t]*\(/)
        refuse("inline PTX is for GPUs: put it under #ifdef __NVCC__, and C++ under #else")
    if (code ~ /(^|[^A-Za-z0-9_])(tex[123]D|texCubemap|tex1Dfetch)[A-Za-z]*[ \t]*[<(]/ ||
        code ~ /(^|[^A-Za-z0-9_])(texture[ \t]*<|cudaTextureObject_t)/)
        refuse("there are no textures: read the array itself, with indices clamped or wrapped")
    if (code ~ /(^|[^A-Za-z0-9_])(surf[123]D|surfCubemap)[A-Za-z]*[ \t]*[<(]/ ||
        code ~ /(^|[^A-Za-z0-9_])(surface[ \t]*<|cudaSurfaceObject_t)/)
        refuse("there are no surfaces: write the array itself")
}

# A declaration may begin anywhere in a line, and continue in the next line.
pending != "" || find_word($0, "extern") > 0 {
    text = pending $0
    done = ""
    while ((at = find_word(text, "extern")) > 0) {
        # Words before it, such as volatile, belong to it; text that ends in ; { or } does not.
        rest = substr(text, at)
        end = index(rest, ";")
        brace = index(rest, "{")
        if (end == 0 && brace == 0) break
        if (brace > 0 && (end == 0 || brace < end)) end = brace
        statement = substr(rest, 1, end)
        if (index(statement, shared) > 0) statement = rewrite(statement)
        done = done substr(text, 1, at - 1) statement
        text = substr(rest, end + 1)
    }
    joined = pending != ""
    pending = ""
    if (find_word(text, "extern") > 0) {
        pending = done text " "
        next
    }
    if (joined) print "# " line " " file
    print done text
    next
}

{ print }

END {
    if (pending != "") print pending
    if (refused || !rewritten) exit 1
}
