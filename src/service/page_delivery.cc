#include "service/page_delivery.h"

#include "penstock/device/atomic.cuh"
#include "service/staged_delivery.h"

namespace penstock::service {
namespace {

using device::SystemWords;

// The host can address the frames: pages are read into them.
class FrameDelivery final : public PageDelivery {
public:
    explicit FrameDelivery(Shared& shared) : shared_(shared), page_size_(shared.page_size()) {}

    size_t begin(uint32_t) override { return SIZE_MAX; }
    void end(size_t) override {}
    std::byte* destination(const PageOf& page) override {
        return shared_.state->frames + page.frame() * page_size_;
    }
    bool complete_whole(const ReadRun& run) override {
        for (const Request& request : run.requests) {
            uint64_t* words = shared_.state->completions + request.frame;
            const Completion word = make_completion(request.generation, 0,
                                                    static_cast<uint32_t>(page_size_));
            for (uint32_t k = 0; k < request.page_count; ++k)
                SystemWords::store(words[k], word, site::kComplete);
            shared_.device->notify(words, request.page_count);
        }
        return true;
    }
    void complete(const PageOf& page, Completion word) override {
        SystemWords::store(shared_.state->completions[page.frame()], word, site::kComplete);
    }
    void announce(const ReadRun& run, size_t pages) override {
        run.visit_frames(pages, [this](const PageOf& page, size_t count) {
            shared_.device->notify(shared_.state->completions + page.frame(), count);
        });
    }

private:
    const Shared& shared_;
    const uint64_t page_size_;
};

}  // namespace

std::unique_ptr<PageDelivery> PageDelivery::create(Shared& shared, Progress& progress) {
    if (shared.direct()) return std::make_unique<FrameDelivery>(shared);
    return std::make_unique<StagedDelivery>(shared, progress);
}

}  // namespace penstock::service
