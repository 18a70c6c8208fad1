#include "bench/preempt/model.h"

#include <algorithm>
#include <cstdio>

namespace penstock::bench {
namespace {

// Seconds that one piece computes in its place.
double piece_seconds(const Work& work) {
    return work.reads == 0 ? 0 : work.io_compute * work.places / static_cast<double>(work.reads);
}

// Seconds that one read takes of the storage's time.
double read_seconds(const Work& work) {
    return work.reads == 0 ? 0 : work.io / static_cast<double>(work.reads);
}

// Fills in the terms, in seconds of the whole device. I contains what reads cost in the places of
// blocks that spin; if blocks leave, it delays the computation of others.
Prediction terms(const Constants& constants, const Work& work, bool leaves) {
    const auto reads = static_cast<double>(work.reads), bytes = static_cast<double>(work.bytes);
    Prediction terms;
    // Threads of the host have cores of their own where there are more cores than places.
    const double spare = work.cores > work.places ? 0 : 1.0 / work.cores;
    terms.reads = (reads * constants.host_read + bytes * constants.host_byte) * spare;
    if (!leaves) return terms;
    terms.reads += (reads * constants.read + bytes * constants.byte) / work.places;
    terms.switches = reads * constants.switching / work.places;
    terms.watching = work.io * constants.watching * spare;
    terms.form = work.form;
    terms.way_back = constants.way_back + work.dispatch_delay;
    return terms;
}

// Blocks leave and come back first. The longer one of two chains determines the time: all reads,
// then the last block comes back and computes; or the computation, which begins behind the first
// read unless other kernels compute meanwhile, with what switches and reads cost.
Prediction leaving(const Constants& constants, const Work& work) {
    Prediction result = terms(constants, work, true);
    const bool alone = work.compute <= work.io_compute;
    const double first = alone ? read_seconds(work) + result.way_back : 0;
    const double reads = work.io + result.way_back + piece_seconds(work);
    const double computes = work.compute + result.form + result.switches + result.reads +
                            result.watching + first;
    result.io_bound = reads > computes;
    result.seconds = std::max(reads, computes);
    return result;
}

// As above, but ready blocks wait behind the compute kernels: their second reads begin when these
// are over. Each block that comes back costs a launch.
Prediction coming_last(const Constants& constants, const Work& work) {
    Prediction result = leaving(constants, work);
    const double first = work.io / static_cast<double>(work.reads_of_block);
    const double others = work.compute - work.io_compute;
    const double rest = std::max(work.io - first, work.io_compute + result.switches);
    const double launches = static_cast<double>(work.reads) *
                            (constants.launch + work.dispatch_delay);
    result.seconds = std::max(
        {std::max(first, others + result.reads) + rest, result.seconds, launches});
    result.io_bound = work.io - first > work.io_compute;
    return result;
}

// Blocks keep their places: each place waits and computes in turn, and waits of several places
// overlap as far as the storage allows. Then the other kernels compute.
Prediction spinning(const Constants& constants, const Work& work, unsigned places) {
    Prediction result = terms(constants, work, false);
    const double in_turn = work.io / places + work.io_compute + result.reads;
    const double reads = work.io + piece_seconds(work);
    result.io_bound = reads > in_turn;
    result.seconds = std::max(reads, in_turn) + work.compute - work.io_compute;
    return result;
}

// One place belongs to the queue of tasks until the last read; the others compute meanwhile.
Prediction persistent(const Constants& constants, const Work& work) {
    Prediction result = terms(constants, work, false);
    const double own = std::max(work.io, work.io_compute * work.places) + piece_seconds(work);
    const double others = (work.compute - work.io_compute) * work.places + result.reads;
    const double left = std::max(0.0, others - own * (work.places - 1));
    result.io_bound = work.io > work.io_compute * work.places;
    result.seconds = own + left / work.places;
    return result;
}

}  // namespace

Prediction predict(WaitMode mode, const Constants& constants, const Work& work) {
    switch (mode) {
        case WaitMode::kAdaptive:
        case WaitMode::kAlways:
        case WaitMode::kForced:
            return leaving(constants, work);
        case WaitMode::kSeedPolicy:
            return coming_last(constants, work);
        case WaitMode::kMorePlaces:
            return spinning(constants, work, work.places * kPlacesFactor);
        case WaitMode::kPersistent:
            return persistent(constants, work);
        case WaitMode::kSplitKernels: {
            Prediction result = terms(constants, work, false);
            result.io_bound = work.io > work.compute + result.reads;
            result.seconds = std::max(work.io + piece_seconds(work), work.compute + result.reads);
            return result;
        }
        case WaitMode::kSpin:
        case WaitMode::kBackoff:
        case WaitMode::kNever:
            break;
    }
    return spinning(constants, work, work.places);
}

double seed_gain(double ratio, double beta) {
    return (1 + ratio) / (std::max(1.0, ratio) + 1 / beta);
}

std::string Prediction::describe(const Work& work) const {
    const auto ms = [](double value) { return value * 1e3; };
    char text[280];
    std::snprintf(text, sizeof text,
                  "predicted %.1f ms = max(I, C) + %.1f ms, bound by %s: switches %.2f ms, reads "
                  "%.2f ms, watcher %.2f ms, second form %.2f ms, way back %.2f ms",
                  ms(seconds), ms(seconds - std::max(work.io, work.compute)), io_bound ? "I" : "C",
                  ms(switches), ms(reads), ms(watching), ms(form), ms(way_back));
    return text;
}

}  // namespace penstock::bench
