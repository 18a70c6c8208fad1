"""Makes random kernels with preemption points, for test_preempt_runs.py.

Each kernel has points at random places of random code: loops, conditions, early returns, arrays,
structs, references, pointers, lambdas, shared memory, templates and reads, of which some end with
the file. The code has no data races, so that its results do not depend on when blocks leave.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

HEADER = """\
#include "random.h"

#include "penstock/device/preemption.cuh"

using namespace penstock;

struct Pair {
    float first;
    unsigned second;
};
struct Box {
    unsigned values[3];
    short count;
};
#define DECLARE_TWO(a, b) unsigned a, b
namespace shapes {
struct Point {
    unsigned x, y;
    __device__ unsigned sum() const { return x + y * 3; }
    __device__ void move(unsigned by) { x += by, y ^= by; }
};
__device__ inline Point turned(const Point& one) { return {one.y, one.x + 1}; }
template <class Thing>
__device__ unsigned sum_of(Thing& thing) {
    return thing.sum();
}
}  // namespace shapes
__device__ inline unsigned mix(unsigned a, unsigned b) { return a * 31 + (b ^ (a >> 3)); }
__device__ unsigned of_block(unsigned a) { return a + blockIdx.x * 7 + gridDim.x; }
__device__ inline void bump(unsigned& value, unsigned by) { value += by; }
template <class T>
__device__ T twice(T value) {
    return value + value;
}
"""
PARAMETERS = (
    "DeviceFileSystem fs, Descriptor file, unsigned char* buffers, const unsigned* in, "
    "unsigned* out, int n"
)
SCALARS = ("unsigned", "int", "float", "double", "unsigned char", "long long", "bool")
FILE_SIZE = 300_000  # of the test; some reads end behind it


@dataclass
class Variable:
    """A name that expressions may use."""

    name: str
    kind: str  # a scalar type, Pair, Box, Point, array, boxes, lambda, mutator
    fixed: bool = False  # it is not assigned to
    uniform: bool = False


class Kernel:
    """One kernel's text."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.chance = chance
        self.count = 0
        self.points = 0
        self.scopes: list[list[Variable]] = [[]]
        self.lines: list[str] = []
        self.loops: list[bool] = []  # whether each loop round the place is uniform
        self.shared = [f"tile{i}" for i in range(chance.randrange(3))]
        self.name = name
        self.types = [*SCALARS, "T", "T"] if chance.random() < 0.3 else [*SCALARS]
        for tile in self.shared:
            self._put(f"__shared__ unsigned {tile}[64];")
            self._put(f"{tile}[threadIdx.x] = threadIdx.x * 5;")
        self._put("__syncthreads();")
        self._put("const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;")
        self._put("unsigned char* mine = buffers + blockIdx.x * 4096;")
        self._put("unsigned sum = row;")
        self._block(chance.randrange(10, 22), 0, uniform=True)
        if self.points == 0:
            self._point()
        self._fold(self.scopes[0], 1)
        self._put("out[row] = sum;")

    def text(self) -> str:
        """Return the kernel's definition."""
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"{self.head()}__global__ void {self.name}({PARAMETERS}) {{\n{body}}}\n"

    def head(self) -> str:
        """Return the template head, or nothing."""
        return "template <class T>\n" if "T" in self.types else ""

    def instance(self) -> str:
        """Return the kernel's name with its template arguments."""
        return f"{self.name}<unsigned short>" if "T" in self.types else self.name

    def _put(self, line: str) -> None:
        self.lines.append("    " * (len(self.scopes) - 1) + line)

    def _new(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _variables(self) -> list[Variable]:
        return [one for scope in self.scopes for one in scope]

    def _pick(self, *kinds: str, assigned: bool = False) -> Variable | None:
        found = [
            one
            for one in self._variables()
            if one.kind in kinds and not (assigned and (one.fixed or one.uniform))
        ]
        return self.chance.choice(found) if found else None

    def _value(self, one: Variable) -> str:
        chance = self.chance
        forms = {
            "Pair": ("(unsigned({0}.first) + {0}.second)",),
            "Box": ("({0}.values[{1}] + {0}.count)",),
            "Point": ("{0}.sum()", "shapes::sum_of({0})", "shapes::turned({0}).x"),
            "array": ("{0}[{1}]", "{0}[3]", "{0}[threadIdx.x % 4]"),
            "boxes": ("{0}[0].values[{1}]", "{0}[1].values[{1}]"),
            "lambda": ("{0}({1}u)", "{0}(row)"),
            "mutator": ("{0}({1}u)",),
        }
        form = chance.choice(forms.get(one.kind, ("unsigned({0})",)))
        return form.format(one.name, chance.randrange(3))

    def _expression(self, depth: int = 2) -> str:
        chance = self.chance
        if depth > 0 and chance.random() < 0.6:
            left, right = self._expression(depth - 1), self._expression(depth - 1)
            form = chance.choice(
                (
                    *("({0} + {1})", "({0} * 3u + {1})", "({0} ^ {1})", "mix({0}, {1})"),
                    *("of_block({0})", "twice({0})", "({0} % 7u > 3u ? {0} : {1})"),
                )
            )
            return form.format(left, right)
        # Nothing says in which order an expression calls lambdas that change a variable.
        found = [one for one in self._variables() if one.kind != "mutator"]
        one = chance.choice(found) if found else None
        if one is not None and chance.random() < 0.7:
            return self._value(one)
        leaves = ["row", "sum", "unsigned(n)", "threadIdx.x", "blockIdx.x", "5u"]
        return chance.choice([*leaves, f"in[(row + {chance.randrange(99)}) % 4096]"])

    def _uniform_condition(self) -> str:
        chance = self.chance
        counters = [one.name for one in self._variables() if one.uniform]
        left = chance.choice(["n", "int(blockIdx.x)", *counters])
        vote = f"__syncthreads_or({self._expression(1)} % 5u == {chance.randrange(5)}u)"
        plain = f"{left} % {chance.randrange(2, 4)} == {chance.randrange(2)}"
        return vote if chance.random() < 0.2 else plain

    def _fold(self, scope: list[Variable], share: float) -> None:
        for one in scope:
            if self.chance.random() < share:
                self._put(f"sum = mix(sum, {self._value(one)});")

    def _block(self, length: int, depth: int, *, uniform: bool) -> None:
        kinds = [*[self._declare, self._assign] * 2, self._alias, self._choose]
        for _ in range(length):
            chance = self.chance.random()
            if uniform and chance < 0.17:
                self._point()
            elif uniform and chance < 0.24 and self.shared:
                self._exchange()
            elif chance < 0.42 and depth < 3:
                self._nest(depth, uniform=uniform and self.chance.random() < 0.8)
            elif uniform and chance < 0.45:
                self._leave()
            elif chance < 0.47 and self.loops and not self.loops[-1]:
                way = self.chance.choice(("break", "continue"))
                self._put(f"if ({self._expression(1)} % 5u == 2u) {way};")
            else:
                self.chance.choice(kinds)()

    def _inside(
        self, head: str, length: int, depth: int, *, uniform: bool, tail: str = "}"
    ) -> None:
        self._put(head)
        self.scopes.append([])
        self._block(length, depth + 1, uniform=uniform)
        self._fold(self.scopes[-1], 0.5)
        self.scopes.pop()
        self._put(tail)

    def _nest(self, depth: int, *, uniform: bool) -> None:
        chance = self.chance
        length = chance.randrange(1, 6)
        form = chance.randrange(6)
        condition = self._uniform_condition() if uniform else f"{self._expression(1)} % 3u == 1u"
        if form == 0:
            self._inside(f"if ({condition}) {{", length, depth, uniform=uniform)
        elif form == 1:
            self._inside(f"if ({condition}) {{", length, depth, uniform=uniform, tail="} else {")
            self._inside("{", length, depth, uniform=uniform, tail="} }")
        elif form == 5:
            name = self._new()
            value = "n + blockIdx.x" if uniform else self._expression(1)
            self.scopes.append([Variable(name, "unsigned", fixed=True)])
            head = f"if (const unsigned {name} = {value}; {name} % 3u < 2u) {{"
            self._inside(head, length, depth, uniform=uniform)
            self.scopes.pop()
        elif form == 2:
            self._inside("{", length, depth, uniform=uniform)
        else:
            self._loop(length, depth, uniform=uniform)

    def _loop(self, length: int, depth: int, *, uniform: bool) -> None:
        chance = self.chance
        name = self._new()
        limit = chance.choice(("2", "3", "n % 3"))
        if not uniform:
            limit = f"int({self._expression(1)} % 3u)"
        self.loops.append(uniform)
        self.scopes.append([Variable(name, "int", fixed=True, uniform=uniform)])
        form = chance.randrange(4)
        if form == 1:
            self._put("#pragma unroll")
        if form < 2:
            head = f"for (int {name} = 0; {name} < {limit}; ++{name}) {{"
            self._inside(head, length, depth, uniform=uniform)
        elif form == 2:
            self._put(f"int {name} = 0;")
            self._inside(f"while ({name}++ < {limit}) {{", length, depth, uniform=uniform)
        else:
            self._put(f"int {name} = 0;")
            tail = f"}} while (++{name} < {limit});"
            self._inside("do {", length, depth, uniform=uniform, tail=tail)
        scope = self.scopes.pop()
        if form >= 2:
            self.scopes[-1] += scope
        self.loops.pop()

    def _leave(self) -> None:
        chance = self.chance
        way = chance.choice(("return", "break", "continue") if self.loops else ("return",))
        if way == "return":
            self._put(f"if (blockIdx.x == {chance.randrange(6)} && n == 4) {{")
            self._put("    out[row] = sum;")
            self._put("    return;")
            self._put("}")
        else:
            self._put(f"if ({self._uniform_condition()}) {way};")

    def _point(self) -> None:
        self.points += 1
        if self.chance.random() < 0.7:
            words = ("yield();", "penstock::yield();", "{ yield(); }", "::penstock::yield();")
            self._put(self.chance.choice(words))
            return
        name = self._new()
        start = self.chance.choice((self.chance.randrange(9000), FILE_SIZE - 400))
        offset = f"{start} + blockIdx.x * 64"
        self._put("__syncthreads();")
        form = self.chance.randrange(4)
        if form == 0 and self.shared:
            self._read_shared(name, offset)
        elif form == 1:
            self._put(f"const AsyncHandle {name} = gread_async(fs, file, {offset}, 256, mine);")
            self._put(f"preempt_point(fs, {name});")
            self._put(f"sum += unsigned(penstock::gwait(fs, {name})) + mine[threadIdx.x];")
        else:
            call = self.chance.choice(("gread", "penstock::gread"))
            self._put("#pragma preempt")
            self._put(f"const int64_t {name} = {call}(fs, file, {offset}, 256, mine);")
            self._put(f"sum = mix(sum, mine[threadIdx.x] + unsigned({name}));")
        self._put("__syncthreads();")

    # A short read leaves the rest of the tile as it was.
    def _read_shared(self, name: str, offset: str) -> None:
        tile = self.chance.choice(self.shared)
        size = self.chance.choice((f"sizeof {tile}", "256", "128"))
        self._put("#pragma preempt")
        self._put(f"const int64_t {name} = gread(fs, file, {offset}, {size}, {tile});")
        index = f"(threadIdx.x + {self.chance.randrange(64)}) % 64"
        self._put(f"sum = mix(sum, {tile}[{index}] + unsigned({name}));")

    # Writes shared memory, and reads what other threads wrote.
    def _exchange(self) -> None:
        tile = self.chance.choice(self.shared)
        if self.scopes[1:] and self.chance.random() < 0.2:
            tile = self._new()
            self._put(f"__shared__ unsigned {tile}[64];")
        if self.chance.random() < 0.7:
            self._put(f"{tile}[threadIdx.x] = {self._expression()};")
        else:
            self._put(f"{tile}[threadIdx.x] = row;")
            if self.chance.random() < 0.3:
                self._point()
            self._put(f"{tile}[threadIdx.x] += {self._expression(1)};")
        self._put("__syncthreads();")
        for _ in range(self.chance.randrange(3)):
            self._point()
            self._put(f"sum += {tile}[(threadIdx.x + {self.chance.randrange(64)}) % 64];")
        self._put("__syncthreads();")

    def _declare(self) -> None:
        chance = self.chance
        name = self._new()
        form = chance.randrange(17)
        if form >= 12:
            self._declare_other(name, form)
            return
        scope = self.scopes[-1]
        if form < 5:
            kind = chance.choice(self.types)
            init = f"static_cast<{kind}>({self._expression()} % 1000u)"
            constant = chance.random() < 0.3
            word = "const " if constant else ""
            text = chance.choice((f"{kind} {name} = {init}", f"auto {name} = {init}"))
            self._put(f"{word}{text};")
            scope.append(Variable(name, kind, fixed=constant))
        elif form == 5:
            other = self._new()
            self._put(
                f"unsigned {name} = {self._expression()}, {other}({self._expression(1)} + 0u);"
            )
            scope += [Variable(name, "unsigned"), Variable(other, "unsigned")]
        elif form == 6:
            other = self._new()
            self._put(f"DECLARE_TWO({name}, {other});")
            self._put(f"{name} = {self._expression()}, {other} = {self._expression()};")
            scope += [Variable(name, "unsigned"), Variable(other, "unsigned")]
        elif form == 7:
            first, second = self._expression(1), self._expression(1)
            self._put(f"Pair {name}{{float({first} % 99u), {second}}};")
            scope.append(Variable(name, "Pair"))
        elif form == 8:
            self._put(f"Box {name} = {{{{{self._expression(1)}, 2, {self._expression(1)}}}, 3}};")
            scope.append(Variable(name, "Box"))
        elif form == 9:
            self._put(f"Box {name}[2];")
            self._put(f"for (int i = 0; i < 6; ++i) {name}[i / 3].values[i % 3] = row + i;")
            scope.append(Variable(name, "boxes"))
        elif form == 10:
            self._put(f"unsigned {name}[4];")
            self._put(f"for (int i = 0; i < 4; ++i) {name}[i] = {self._expression(1)} + i;")
            scope.append(Variable(name, "array"))
        elif form == 11:
            fixed = chance.random() < 0.4
            word = "const " if fixed else ""
            value = f"{{{self._expression(1)}, 7, {self._expression(1)}, 1}}"
            self._put(f"{word}unsigned {name}[4] = {value};")
            scope.append(Variable(name, "array", fixed=fixed))

    def _declare_other(self, name: str, form: int) -> None:
        scope = self.scopes[-1]
        if form == 12:
            init = f"{{{self._expression(1)}, {self._expression(1)}}}"
            self._put(f"shapes::Point {name}{init};")
            scope.append(Variable(name, "Point"))
        elif form == 13:
            other = self._new()
            value = self._expression(1)
            self._put(f"const auto [{name}, {other}] = shapes::Point{{{value}, row}};")
            scope += [Variable(one, "unsigned", fixed=True) for one in (name, other)]
        elif form == 14 and self.shared:
            # The thread's own element, which others read only in _exchange.
            self._put(f"unsigned* {name} = &{self.chance.choice(self.shared)}[threadIdx.x];")
            scope.append(Variable(f"(*{name})", "unsigned"))
        else:
            self._declare_lambda(name)

    def _declare_lambda(self, name: str) -> None:
        capture = self.chance.choice(("=", "&"))
        parameter = self.chance.choice(("unsigned x", "auto x", "const auto& x"))
        value = self._expression(1)
        form = self.chance.randrange(4)
        kind = "mutator" if form < 2 else "lambda"
        if form == 0 and (one := self._pick("unsigned", assigned=True)) and "*" not in one.name:
            self._put(f"auto {name} = [&]({parameter}) {{ return {one.name} += x; }};")
        elif form < 2:
            self._put(f"auto {name} = [t = {value}]({parameter}) mutable {{ return t += x; }};")
        else:
            word = self.chance.choice(("", "const "))
            self._put(f"{word}auto {name} = [{capture}]({parameter}) {{ return x + {value}; }};")
        self.scopes[-1].append(Variable(name, kind, fixed=True))

    # A switch, or a loop over an array: without points.
    def _choose(self) -> None:
        array = self._pick("array")
        if array is not None and self.chance.random() < 0.5:
            self._put(f"for (const unsigned one : {array.name}) sum = mix(sum, one);")
            return
        self._put(f"switch ({self._expression(1)} % 3u) {{")
        self._put(f"    case 0: sum += {self._expression(1)}; break;")
        self._put(f"    case 1: sum ^= {self._expression(1)}; [[fallthrough]];")
        self._put("    default: sum += 3;")
        self._put("}")

    # Declares a reference or a pointer to a variable, or changes one in a lambda.
    def _alias(self) -> None:
        one = self._pick("unsigned", "array", "Pair", assigned=True)
        if one is None:
            return
        name = self._new()
        place = {"unsigned": one.name, "array": f"{one.name}[2]", "Pair": f"{one.name}.second"}
        target = place[one.kind]
        form = self.chance.randrange(3)
        if form == 0:
            self._put(f"unsigned& {name} = {target};")
            self.scopes[-1].append(Variable(name, "unsigned"))
        elif form == 1:
            self._put(f"unsigned* {name} = &{target};")
            self.scopes[-1].append(Variable(f"(*{name})", "unsigned"))
        else:
            self._put(f"bump({target}, {self._expression(1)});")

    def _assign(self) -> None:
        one = self._pick(*self.types, "Pair", "Box", "Point", "array", "boxes", assigned=True)
        value = self._expression()
        if one is None:
            self._put(f"sum += {value};")
        elif one.kind == "Pair":
            self._put(f"{one.name}.second = {value};")
        elif one.kind == "Point":
            self._put(f"{one.name}.move({value});")
        elif one.kind == "Box":
            self._put(f"{one.name}.values[{self.chance.randrange(3)}] = {value};")
        elif one.kind == "boxes":
            index = f"[{self.chance.randrange(2)}].values[{self.chance.randrange(3)}]"
            self._put(f"{one.name}{index} = {value};")
        elif one.kind == "array":
            index = self.chance.choice((*"0123", "threadIdx.x % 4"))
            self._put(f"{one.name}[{index}] = {value};")
        elif one.kind == "bool":
            self._put(f"{one.name} = {value} % 2u == 0u;")
        else:
            self._put(f"{one.name} = static_cast<decltype({one.name} + 0)>({value} % 1000u);")


def kernels(seed: int, count: int) -> Iterator[Kernel]:
    """Make kernels; each depends on the seed and its number alone."""
    for index in range(count):
        yield Kernel(f"random{index}", random.Random(f"{seed} {index}"))


def source(made: list[Kernel]) -> str:
    """Return a source file with the kernels."""
    return HEADER + "".join(f"\n{one.text()}PENSTOCK_KERNEL({one.instance()})\n" for one in made)


def header(made: list[Kernel]) -> str:
    """Declare the kernels, for the source and for main."""
    lines = ['#include "penstock/device/handle.h"', '#include "penstock/kernel.h"']
    parameters = PARAMETERS.replace("DeviceFile", "penstock::DeviceFile")
    parameters = parameters.replace("Descriptor", "penstock::Descriptor")
    lines += [f"{one.head()}PENSTOCK_GLOBAL void {one.name}({parameters});" for one in made]
    names = " ".join(f"X({one.instance()})" for one in made)
    return "\n".join([*lines, f"#define RANDOM_KERNELS {names}", ""])


def refused(made: list[Kernel], errors: str) -> set[str]:
    """Return the kernels that the errors are in."""
    lines = source(made).splitlines()
    found = set()
    for match in re.finditer(r":(\d+):\d+: error: ", errors):
        heads = [re.match(r"__global__ void (\w+)\(", line) for line in lines[: int(match[1])]]
        found.add(next(head[1] for head in reversed(heads) if head is not None))
    return found
