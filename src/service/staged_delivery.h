// Delivers pages to a device whose memory the host cannot address. They are read into pinned
// memory; copies bring them to their frames, or the waiting teams pull them from there.
#pragma once

#include <memory>

#include "service/claim_limit.h"
#include "service/page_delivery.h"
#include "service/page_sender.h"

namespace penstock::service {

class StagedDelivery final : public PageDelivery {
public:
    StagedDelivery(Shared& shared, Progress& progress)
        : shared_(shared), progress_(progress), limit_(shared) {}

    Status take_staging() override;
    size_t begin(uint32_t ring) override;
    bool may_claim() override;
    void end(size_t pages) override;
    std::byte* destination(const PageOf& page) override { return page_sender_->page(page.place); }
    bool complete_whole(const ReadRun& run) override;
    void complete(const PageOf& page, Completion word) override {
        page_sender_->word(page.place) = word;
    }
    void announce(const ReadRun& run, size_t pages) override;
    void answer_nothing(const ReadRun& run) override;
    void send_answers() override;
    void send() override;
    void send_due(uint64_t now_ns) override;

private:
    bool look_after_copies(uint64_t now_ns);
    void answer(const Request& request, const std::byte* bytes, bool waited);

    Shared& shared_;
    Progress& progress_;
    ClaimLimit limit_;
    std::unique_ptr<PageSender> page_sender_;
    AnswerBatch answers_;
    // Of the current drain:
    uint32_t ring_index_ = 0;
    const RingState* ring_ = nullptr;
    AnswerSender* answer_sender_ = nullptr;  // null: its teams pull no pages
    uint64_t due_ns_ = 0;                    // when to send what has been read
};

}  // namespace penstock::service
