// A closure of values is saved bytewise if what it captured changes, or if it has a state.
// RUN: transform
// CHECK: auto f = [=] { return v.x; }; if (penstock_at != 0) { penstock_run.load_into(f,
// CHECK: auto next = [count = row]() mutable { return ++count; }; if (penstock_at != 0) {
//    penstock_run.load_into(next,
// CHECK: penstock_run.save(2, f); penstock_run.save(4, next);
// CHECK: .thread_words = 5, .block_words = 0
#include "penstock/device/preemption.cuh"
#include "penstock/kernel.h"

using namespace penstock;

struct Vector {
    float x, y;
};

__global__ void kernel(const float* in, float* out) {
    const int row = threadIdx.x;
    Vector v{in[row], 2};
    const auto f = [=] { return v.x; };
    auto next = [count = row]() mutable { return ++count; };
    v.x += 100;
    out[row] = next();
    yield();
    out[row] += f() + v.x + next();
}
PENSTOCK_KERNEL(kernel)
