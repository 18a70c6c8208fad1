#include "service/prefetch_pages.h"

#include "penstock/device/file.cuh"

namespace penstock::service {

// Returns how many of the batch's pages are missing, over the whole team.
template <class Team>
PENSTOCK_DEVICE unsigned count_absent(const Team& team, const FileSystemState& system,
                                      const FileState& file, const device::Batch<Team>& batch) {
    unsigned absent = 0, total = 0;
    for (unsigned i = team.lane(); i < batch.count; i += team.lanes())
        absent += device::is_absent(system, file, batch.first + i);
    (void)team.count_before(absent, total);
    return total;
}

__global__ void prefetch_pages(FileSystemState* state, const PrefetchRange* ranges,
                               uint64_t count) {
    FileSystemState& system = *state;
    const device::Block group;
    const auto begin = [](const auto&, unsigned, unsigned) -> ReadaheadPlace* { return nullptr; };
    const auto end = [](ReadaheadPlace*) {};
    for (uint64_t i = blockIdx.x; i < count; i += gridDim.x) {
        const PrefetchRange range = ranges[i];
        const auto work = [&system, range](const auto& team, unsigned index, unsigned teams,
                                           ReadaheadPlace*) -> int64_t {
            using Pages = device::Batch<std::decay_t<decltype(team)>>;
            if (team.any(device::find_file(system, range.file) == nullptr)) return 0;
            const FileState& file = system.files[descriptor_slot(range.file)];
            // If the launch has more blocks than those that were learned from, the learned pages
            // may lie beyond the file. The directory words there belong to other files.
            const uint64_t in_page = (1ull << system.page_shift) - 1;
            uint64_t pages = (device::DeviceWords::load(file.size, site::kRelaxed) + in_page) >>
                             system.page_shift;
            pages = team.broadcast(pages, 0);
            const uint64_t left = range.first < pages ? pages - range.first : 0;
            const uint64_t count = range.count < left ? range.count : left;
            for (uint64_t at = uint64_t{index} * Pages::kPages; at < count;
                 at += uint64_t{teams} * Pages::kPages) {
                Pages batch;
                batch.first = range.first + at;
                batch.count = count - at < Pages::kPages ? static_cast<unsigned>(count - at)
                                                         : Pages::kPages;
                const unsigned absent = count_absent(team, system, file, batch);
                if (device::hold_pages(team, system, range.file, nullptr, batch, false) != 0)
                    return 0;
                device::settle_pages(team, system, batch, 0);
                device::unpin_pages(team, batch, 0);
                if (team.lane() == 0) {
                    device::add_count(system.totals[descriptor_slot(range.file)].learned, absent);
                }
            }
            return 0;
        };
        (void)group.divide(begin, work, end);
    }
}

}  // namespace penstock::service

PENSTOCK_KERNEL(penstock::service::prefetch_pages)
