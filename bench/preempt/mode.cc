#include "bench/preempt/mode.h"

#include <string>

#include "bench/harness/report.h"
#include "penstock/preemption.h"
#include "preemption/product_kernels.h"

namespace penstock::bench {

const char* name(WaitMode mode) {
    switch (mode) {
        case WaitMode::kSpin:
            return "spin";
        case WaitMode::kNever:
            return "never";
        case WaitMode::kAdaptive:
            return "adaptive";
        case WaitMode::kAlways:
            return "always";
        case WaitMode::kSeedPolicy:
            return "seed-policy";
        case WaitMode::kForced:
            return "forced";
        case WaitMode::kSplitKernels:
            return "split-kernels";
        case WaitMode::kMorePlaces:
            return "more-places";
        case WaitMode::kBackoff:
            return "backoff";
        case WaitMode::kPersistent:
            return "persistent";
    }
    return "";
}

bool has_mode(WaitMode mode) {
    switch (mode) {
        case WaitMode::kNever:
        case WaitMode::kAdaptive:
        case WaitMode::kAlways:
        case WaitMode::kSeedPolicy:
        case WaitMode::kForced:
            return workloads::product_is_preemptible();
        default:
            return true;
    }
}

void choose_mode(const Device& device, WaitMode mode, double dispatch_delay_us) {
    if (!has_mode(mode)) fail(std::string(name(mode)) + ": this build has no such mode");
    if (!workloads::product_is_preemptible()) return;
    PreemptionOptions options;
    options.dispatch_delay_us = dispatch_delay_us;
    switch (mode) {
        case WaitMode::kAdaptive:
            break;
        case WaitMode::kAlways:
            options.policy = PreemptionPolicy::kAlways;
            break;
        case WaitMode::kSeedPolicy:
            options.policy = PreemptionPolicy::kAlways;
            options.first = options.batches = options.keeps_popping = false;
            break;
        case WaitMode::kForced:
            options.policy = PreemptionPolicy::kNever;
            options.forced_share = 1;
            break;
        case WaitMode::kNever:
            options.policy = PreemptionPolicy::kNever;
            break;
        case WaitMode::kSpin:
        case WaitMode::kSplitKernels:
        case WaitMode::kMorePlaces:
        case WaitMode::kBackoff:
        case WaitMode::kPersistent:
            options.enabled = false;
            break;
    }
    need(set_preemption(device, options), "preemption");
}

}  // namespace penstock::bench
