// Plain programs on a file that the OS has cached: the limits for any program that reads it through
// a page cache of its own.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "bench/gread/gpu_rig.h"
#include "penstock/kernel.h"

namespace penstock::bench {
namespace {

constexpr std::chrono::minutes kRunLimit{1};
constexpr uint64_t kMiB = 1 << 20;
// Bytes that were read last are in the CPUs' caches, from which a device reads slowly.
constexpr uint64_t kDemoted = 32 * kMiB;

// Hints that a device will soon read these bytes, so that their lines move to the cache that all
// CPUs share. CLDEMOTE does nothing on CPUs that do not have it.
void demote(const unsigned char* bytes, size_t size) {
#if defined(__x86_64__)
    constexpr size_t kLineSize = 64;
    for (size_t i = 0; i < size; i += kLineSize) asm volatile("cldemote %0" : : "m"(bytes[i]));
#else
    (void)bytes;
    (void)size;
#endif
}

struct Section {
    uint64_t offset = 0, size = 0;
    std::atomic<uint64_t> left = 0;  // bytes that have not been read
};
struct Window {
    size_t section;
    uint64_t offset, size;
};

// From 1 MiB up to `size_max`, and down again at the end of the file.
std::vector<Section> cut(uint64_t file_size, uint64_t size_max) {
    std::vector<std::pair<uint64_t, uint64_t>> cuts;
    uint64_t most = kMiB;
    for (uint64_t offset = 0; offset < file_size; offset += cuts.back().second) {
        const uint64_t left = file_size - offset;
        const uint64_t half = (left / 2 + kMiB - 1) / kMiB * kMiB;
        cuts.emplace_back(offset, std::min({most, std::max(half, kMiB), left}));
        most = std::min(2 * most, size_max);
    }
    std::vector<Section> sections(cuts.size());
    for (size_t i = 0; i < cuts.size(); ++i) {
        sections[i].offset = cuts[i].first;
        sections[i].size = sections[i].left = cuts[i].second;
    }
    return sections;
}

std::vector<Window> windows_of(const std::vector<Section>& sections) {
    std::vector<Window> windows;
    for (size_t i = 0; i < sections.size(); ++i) {
        const Section& section = sections[i];
        const uint64_t size = std::clamp(section.size / 16, kMiB / 4, kMiB);
        for (uint64_t done = 0; done < section.size; done += size)
            windows.push_back({i, section.offset + done, std::min(size, section.size - done)});
    }
    return windows;
}

}  // namespace

unsigned char* GpuRig::staging(uint64_t size) {
    if (staging_size_ >= size) return staging_;
    if (staging_ != nullptr) device_.free(staging_);
    staging_ = static_cast<unsigned char*>(need(device_.allocate_pinned(size), "pinned memory"));
    staging_size_ = size;
    return staging_;
}

double GpuRig::read_by_host() {
    if (!host_file_) host_file_ = need(File::open(file_.path(), device_), "open");
    prepare();
    uint64_t bytes = 0;
    const double seconds = timed(
        [&] { bytes = need(host_file_->read(buffer_, file_.size(), 0), "read"); });
    wrong_ += bytes != file_.size();
    check(0);
    return seconds;
}

double GpuRig::send_sections(const SectionShape& shape) {
    constexpr unsigned kPlaces = SectionShape::kPlaces;
    unsigned char* const memory = staging(kPlaces * shape.size);
    std::vector<Section> sections = cut(file_.size(), shape.size);
    const std::vector<Window> windows = windows_of(sections);
    std::atomic<size_t> next{0}, over{0};
    std::atomic<uint64_t> wrong{0};
    std::mutex mutex;  // guards the streams, one for each place, and `sent`
    size_t sent = 0;
    const auto look = [&] {
        const std::unique_lock lock(mutex, std::try_to_lock);
        if (!lock.owns_lock()) return;
        while (over < sent && need(streams_[over % kPlaces].idle(), "stream")) ++over;
    };
    const auto send = [&] {
        const std::lock_guard lock(mutex);
        for (; sent < sections.size() && sections[sent].left == 0; ++sent) {
            const Section& section = sections[sent];
            need(streams_[sent % kPlaces].copy(buffer_ + section.offset,
                                               memory + sent % kPlaces * shape.size, section.size),
                 "copy");
        }
    };
    prepare();
    const double seconds = timed([&] {
        crew_.run(shape.threads, [&](unsigned) {
            for (size_t i = next++; i < windows.size(); i = next++) {
                const Window& window = windows[i];
                Section& section = sections[window.section];
                while (window.section >= over + kPlaces) look();
                unsigned char* const to = memory + window.section % kPlaces * shape.size +
                                          (window.offset - section.offset);
                wrong += pread(file_.descriptor(), to, window.size,
                               static_cast<off_t>(window.offset)) !=
                         static_cast<ssize_t>(window.size);
                if (file_.size() - window.offset <= kDemoted) demote(to, window.size);
                if (section.left.fetch_sub(window.size) == window.size) send();
            }
        });
        for (unsigned i = 0; i < kPlaces; ++i) {
            while (!need(streams_[i].idle(), "stream")) {
            }
        }
    });
    wrong_ += wrong;
    check(0);
    return seconds;
}

double GpuRig::pull_beside_reads(const GpuCase& chosen, unsigned readers) {
    constexpr uint64_t kOwn = 2 * kMiB, kPiece = kMiB / 4;
    unsigned char* const memory = staging(readers * kOwn);
    std::atomic<uint64_t> next{0}, wrong{0};
    const PullJob job{pinned_, buffer_, file_.size()};
    prepare();
    const double seconds = timed([&] {
        need(launch(stream_, {{chosen.blocks}, {chosen.threads}}, pull_bytes, job), "launch");
        crew_.run(readers, [&](unsigned reader) {
            uint64_t done = 0;
            for (uint64_t at = next.fetch_add(kPiece); at < file_.size();
                 at = next.fetch_add(kPiece), done += kPiece) {
                wrong += pread(file_.descriptor(), memory + reader * kOwn + done % kOwn, kPiece,
                               static_cast<off_t>(at)) != static_cast<ssize_t>(kPiece);
            }
        });
        spin();
    });
    need(stream_.synchronize(kRunLimit), "kernel");
    wrong_ += wrong;
    check(0);
    return seconds;
}

}  // namespace penstock::bench
