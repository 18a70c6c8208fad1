// The interpreter; see steps.h.
#include "system/steps.h"

#include "penstock/device/file.cuh"

namespace penstock::system_test {

// What a block holds between steps; every thread has the same.
struct Holdings {
    Descriptor files[kFilesPerBlock];
    View views[kViewsPerBlock];
    AsyncHandle calls[kCallsPerBlock];
};

PENSTOCK_DEVICE inline unsigned rank_of_thread() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

PENSTOCK_DEVICE inline unsigned thread_count() { return blockDim.x * blockDim.y * blockDim.z; }

PENSTOCK_DEVICE inline int64_t copy_view(const View& view, std::byte* out) {
    for (int64_t i = rank_of_thread(); i < view.size; i += thread_count()) out[i] = view.data[i];
    return view.size;
}

PENSTOCK_DEVICE inline int64_t misbehave(const Step& step) {
    if (step.act == Act::kTrap) __trap();
    if (step.act == Act::kFault) *step.out = std::byte{1};
    if (step.act != Act::kLoop) return 0;
    const auto& word = *reinterpret_cast<const uint64_t*>(step.out);
    while (device::SystemWords::load(word, site::kRelaxed) == 0) {
    }
    __syncthreads();  // where a block that was given up ends, before it touches the test's memory
    return 0;
}

// The word may change at any time: one thread looks for all.
template <class Group>
PENSTOCK_DEVICE int64_t load_word(const std::byte* out, Group group) {
    return group.once([=]() -> int64_t {
        const auto& word = *reinterpret_cast<const uint64_t*>(out);
        return static_cast<int64_t>(device::SystemWords::load(word, site::kResponse));
    });
}

template <class Group>
PENSTOCK_DEVICE int64_t perform(DeviceFileSystem fs, const Step& step, Holdings& holdings,
                                Group group) {
    Descriptor& file = holdings.files[step.file];
    View& view = holdings.views[step.view];
    AsyncHandle& call = holdings.calls[step.view % kCallsPerBlock];
    switch (step.act) {
        case Act::kOpen:
            return file = gopen(fs, step.path, step.flags, group);
        case Act::kClose:
            return gclose(fs, file, group);
        case Act::kRead:
            return gread(fs, file, step.offset, step.size, step.out, group);
        case Act::kWrite:
            return gwrite(fs, file, step.offset, step.size, step.out, group);
        case Act::kBeginRead:
            return call = gread_async(fs, file, step.offset, step.size, step.out, group);
        case Act::kBeginWrite:
            return call = gwrite_async(fs, file, step.offset, step.size, step.out, group);
        case Act::kWait:
            return gwait(fs, call, group);
        case Act::kCut:
            return gftruncate(fs, file, step.size, group);
        case Act::kUnlink:
            return gunlink(fs, step.path, group);
        case Act::kChange:
            for (int64_t i = rank_of_thread(); i < view.size; i += thread_count())
                view.writable[i] = step.out[i];
            __syncthreads();
            return gmsync(fs, view, group);
        case Act::kSync:
            return gfsync(fs, file, group);
        case Act::kMap:
            view = gmmap(fs, file, step.offset, step.size, group);
            return copy_view(view, step.out);
        case Act::kLook:
            return copy_view(view, step.out);
        case Act::kUnmap:
            return gmunmap(fs, view, group);
        case Act::kStat: {
            FileStatus status;
            const int error = gstat(fs, file, &status, group);
            return error != 0 ? error : static_cast<int64_t>(status.size);
        }
        case Act::kAdvise:
            return gadvise(fs, file, step.offset, step.size, static_cast<Advice>(step.flags),
                           group);
        case Act::kSet:
            return file = step.offset;
        case Act::kNote:
            return load_word(step.out, group);
        case Act::kShare:
            return group.once([&]() -> int64_t {
                auto& word = *reinterpret_cast<uint64_t*>(step.out);
                device::SystemWords::store(word, static_cast<uint64_t>(file), site::kRespond);
                return file;
            });
        case Act::kBorrow:
            return file = load_word(step.out, group);
        default:
            return misbehave(step);
    }
}

// As many GPU threads as the largest block of these tests: with all calls in one kernel a GPU has
// not the registers for them otherwise.
template <class Group>
__global__ void __launch_bounds__(512) run_steps(DeviceFileSystem fs, BlockSteps* blocks) {
    Group group;
    BlockSteps& mine = blocks[blockIdx.x];
    const unsigned rank = rank_of_thread();
    Holdings holdings;
    for (Descriptor& file : holdings.files) file = -1;
    for (AsyncHandle& call : holdings.calls) call = -1;
    for (uint64_t i = 0; i < mine.count; ++i) {
        Step& step = mine.steps[i];
        if (step.act == Act::kLeave) {
            const auto first = static_cast<uint64_t>(step.offset);
            const bool leaves = rank >= first && rank - first < step.size;
            if (leaves) return;
            continue;
        }
        const int64_t result = perform(fs, step, holdings, group);
        if (rank == 0) step.result = result;
        __syncthreads();
        if (step.result != result) atomicAdd(&step.disagreements, 1u);
        __syncthreads();
        if (rank == 0) mine.done = i + 1;
    }
}

__global__ void forget_file(DeviceFileSystem fs, Descriptor file) {
    (void)gadvise(fs, file, 0, 0, Advice::kDontNeed);
}

}  // namespace penstock::system_test

PENSTOCK_KERNEL(penstock::system_test::forget_file)
PENSTOCK_KERNEL(penstock::system_test::run_steps<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::system_test::run_steps<penstock::device::Warps>)
