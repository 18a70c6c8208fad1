#include <algorithm>
#include <memory>

#include "base/units.h"
#include "bench/harness/cold_file.h"
#include "bench/seed000/cases.h"
#include "bench/seed000/post_rig.h"
#include "bench/seed000/threads.h"

namespace penstock::bench {
namespace {

using base::kKiB;
using base::kMiB;

struct Scale {
    unsigned blocks;
    uint64_t stride;  // bytes of each block
};

Scale scale_of(const Arguments& arguments) {
    if (arguments.smoke) return {8, kMiB};
    return {120, arguments.full ? 8 * kMiB : kMiB};
}

std::vector<uint64_t> piece_sizes(const Arguments& arguments) {
    if (!arguments.full) return {4 * kKiB, 64 * kKiB, 128 * kKiB, kMiB};
    std::vector<uint64_t> sizes;
    for (uint64_t size = 4 * kKiB; size <= 4 * kMiB; size *= 2) sizes.push_back(size);
    return sizes;
}

std::string strides_of(const Scale& scale) {
    return std::to_string(scale.blocks) + " strides of " + size_name(scale.stride);
}

// Requests of one size, on a cold file.
class Order {
public:
    Order(Report& report, const Arguments& arguments, ColdFile& cold, const Scale& scale,
          uint64_t piece)
        : report_(report),
          arguments_(arguments),
          cold_(cold),
          scale_(scale),
          piece_(piece),
          own_(device_of(arguments), {}, cold.file(), kHostThreads, {scale.blocks, piece}),
          threads_(cold.file(), kHostThreads, piece) {}

    // Figures 3 to 5.
    void measure_order() {
        const std::string name = "gpu-order-" + size_name(piece_);
        if (!wanted(arguments_, name)) return;
        const auto note = [this](const char* text) {
            return std::string(text) +
                   ", neither page cache nor transfer, 4 host threads with slots of their own, "
                   "cold; " +
                   strides_of(scale_);
        };
        PostRun last;
        const auto posted = [&](bool* right) {
            last = run(own_, right);
            return last.seconds;
        };
        compare(report_, arguments_,
                {name, "cpu-in-order-" + size_name(piece_), note("figures 3 and 4"),
                 cold_.file().size()},
                posted, [&](bool* right) {
                    *right = cold_.make_cold() && *right;
                    return threads_.in_order(piece_, right);
                });
        compare(report_, arguments_,
                {name, "cpu-replay-" + size_name(piece_),
                 note("figure 5: the order that the run before recorded"), cold_.file().size()},
                posted, [&](bool* right) {
                    *right = cold_.make_cold() && *right;
                    return threads_.in_this_order(last.orders, piece_, right);
                });
    }

    // Figure 6: which thread waits how long for its first request, and what the map costs.
    void measure_balance() {
        const std::string name = "fixed-map-" + size_name(piece_);
        const std::string first = "last-first-request-fixed-map-" + size_name(piece_);
        if (!wanted(arguments_, name) && !wanted(arguments_, first)) return;
        PostRig common(device_of(arguments_), {}, cold_.file(), kHostThreads,
                       {scale_.blocks, piece_, false});
        Row whole, begin;
        whole.verified = true;
        std::vector<PostRun> runs[2];
        const auto take = [&](unsigned index, PostRig& rig) {
            runs[index].push_back(run(rig, &whole.verified));
            return runs[index].back().seconds;
        };
        whole.pairs = take_pairs(
            arguments_.pairs, [&] { return take(0, own_); }, [&] { return take(1, common); },
            &whole.cpu_seconds);
        whole.name = name;
        whole.against = "any-thread-" + size_name(piece_);
        whole.bytes = cold_.file().size();
        whole.note = "figure 6: host threads with 32 slots each, cold; " + strides_of(scale_) +
                     "; share of the requests by thread " + shares(runs[0]) + ", any thread " +
                     shares(runs[1]);
        begin = whole;
        begin.name = first;
        begin.pairs.clear();
        // The first run of each was a warm-up.
        for (size_t i = 1; i < runs[0].size(); ++i)
            begin.pairs.emplace_back(last_first(runs[0][i]), last_first(runs[1][i]));
        begin.note =
            "figure 6, cold: seconds until each of the threads has had a request; of a thread "
            "that had none, until the end";
        report_.add(std::move(whole));
        report_.add(std::move(begin));
    }

private:
    PostRun run(PostRig& rig, bool* right) {
        *right = cold_.make_cold() && *right;
        PostRun run = rig.run();
        *right = *right && run.right;
        return run;
    }
    static double last_first(const PostRun& run) {
        double last = 0;
        for (size_t i = 0; i < run.orders.size(); ++i)
            last = std::max(last, run.orders[i].empty() ? run.seconds : run.first_seconds[i]);
        return last;
    }
    static std::string shares(const std::vector<PostRun>& runs) {
        std::vector<uint64_t> counts(kHostThreads);
        uint64_t all = 0;
        for (const PostRun& run : runs) {
            for (size_t i = 0; i < run.orders.size(); ++i) {
                counts[i] += run.orders[i].size();
                all += run.orders[i].size();
            }
        }
        std::string text;
        for (const uint64_t count : counts)
            text += (text.empty() ? "" : "/") + std::to_string((100 * count + all / 2) / all);
        return text + " %";
    }

    Report& report_;
    const Arguments& arguments_;
    ColdFile& cold_;
    const Scale scale_;
    const uint64_t piece_;
    PostRig own_;
    ReadingThreads threads_;
};

}  // namespace

void measure_order(Report& report, const Arguments& arguments) {
    const Scale scale = scale_of(arguments);
    ColdFile cold(scale.blocks * scale.stride);
    for (const uint64_t piece : piece_sizes(arguments)) {
        const std::string size = size_name(piece);
        const bool balance = piece >= 64 * kKiB;
        if (!wanted(arguments, "gpu-order-" + size) &&
            !wanted(arguments, "last-first-request-fixed-map-" + size) &&
            !wanted(arguments, "fixed-map-" + size)) {
            continue;
        }
        Order order(report, arguments, cold, scale, piece);
        order.measure_order();
        if (balance) order.measure_balance();
    }
}

void measure_link(Report& report, const Arguments& arguments) {
    const Scale scale = scale_of(arguments);
    DeviceOptions options;
    options.link_latency_us = 10;
    options.link_bandwidth_gbs = 10;
    std::unique_ptr<TestFile> file;
    for (const uint64_t piece : piece_sizes(arguments)) {
        const std::string name = "in-memory-" + size_name(piece);
        if (!wanted(arguments, name)) continue;
        if (!file) file = std::make_unique<TestFile>(scale.blocks * scale.stride, "/dev/shm");
        PostRig rig(device_of(arguments), options, *file, kHostThreads,
                    {scale.blocks, piece, true, true});
        const Case named{name, "link-at-once",
                         "figure 7: a file in memory, read by 4 host threads and sent piece by "
                         "piece; " +
                             strides_of(scale),
                         file->size(), rig.simulated()};
        compare(
            report, arguments, named,
            [&](bool* right) {
                const PostRun run = rig.run();
                *right = *right && run.right;
                return run.seconds;
            },
            [&](bool*) { return rig.send_at_once(); });
    }
}

}  // namespace penstock::bench
