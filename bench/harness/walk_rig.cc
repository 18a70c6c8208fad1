#include "bench/harness/walk_rig.h"

#include <chrono>

namespace penstock::bench {

WalkDevice::WalkDevice(const std::string& name, const DeviceOptions& options,
                       const WalkKernels& kernels, unsigned blocks, unsigned threads,
                       uint64_t buffer_size)
    : device_(need(Device::open(name, options), "device")),
      kernels_(kernels),
      blocks_(blocks == 0 ? device_.permits() : blocks),
      threads_(threads),
      buffer_size_(buffer_size) {
    stream_ = need(Stream::create(device_), "stream");
    buffers_ = static_cast<unsigned char*>(
        need(device_.allocate(blocks_ * buffer_size_), "buffers"));
    result_ = static_cast<unsigned long long*>(need(device_.allocate(4096), "result"));
}

WalkSystem::WalkSystem(WalkDevice& device, const FileSystemOptions& options,
                       const std::vector<const TestFile*>& files)
    : device_(device), fs_(need(FileSystem::create(device.device(), options), "file system")) {
    for (const TestFile* file : files) files_.push_back(need(fs_.open(file->path()), "open"));
}

WalkRun WalkSystem::run(std::vector<Walk> walks, unsigned threads,
                        const std::function<void()>& meanwhile) {
    Stream& stream = device_.stream();
    if (threads == 0) threads = device_.threads();
    WalkJob job{
        fs_.device_handle(), {}, device_.buffers(), device_.buffer_size(), device_.result()};
    uint64_t expected = 0;
    for (size_t i = 0; i < walks.size(); ++i) {
        job.walks[i] = walks[i];
        job.walks[i].file = files_[i];
        expected += device_.blocks() * walks[i].count * walks[i].size;
    }
    for (const Descriptor file : files_) {
        need(launch(stream, {{1}, {32}}, device_.kernels().forget, fs_.device_handle(), file),
             "launch");
    }
    need(stream.fill(device_.result(), 0, 16), "fill");
    need(stream.synchronize(), "fill");
    WalkRun run;
    run.before = fs_.statistics();
    run.seconds = timed([&] {
        const bool plain = walks.size() == 1 && walks[0].random_pages == 0;
        need(launch(stream, {{device_.blocks()}, {threads}},
                    plain ? device_.kernels().one : device_.kernels().both, job),
             "launch");
        while (meanwhile && !need(stream.idle(), "kernel")) meanwhile();
        need(stream.synchronize(std::chrono::minutes(10)), "kernel");
    });
    run.after = fs_.statistics();
    unsigned long long result[2];
    need(stream.copy(result, device_.result(), sizeof result), "copy");
    need(stream.synchronize(), "copy");
    run.right = result[0] == 0 && result[1] == expected;
    return run;
}

Walk sequential_walk(const WalkDevice& device, const TestFile& file, uint64_t read_size) {
    Walk walk;
    walk.share = file.size() / device.blocks() / read_size * read_size;
    walk.size = read_size;
    walk.step = static_cast<int64_t>(read_size);
    walk.count = walk.share / read_size;
    return walk;
}

void compare(Report& report, const Arguments& arguments, const Case& named, const WalkRunner& one,
             const WalkRunner& other, const std::function<bool()>& state) {
    Row row;
    row.name = named.name;
    row.against = named.against;
    bool right = true, kept = true;
    row.pairs = take_pairs(
        arguments.pairs, [&] { return one(&right); }, [&] { return other(&right); },
        &row.cpu_seconds, [&] { kept = (!state || state()) && kept; });
    row.bytes = named.bytes;
    row.verified = right && kept;
    row.simulated = named.simulated;
    row.note = named.note;
    if (!right) row.note += "; WRONG: a run read other bytes, or not all of them from storage";
    if (!kept) row.note += "; NOT AS CLAIMED: the OS page cache had not all of it";
    report.add(std::move(row));
}

}  // namespace penstock::bench
