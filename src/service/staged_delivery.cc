#include "service/staged_delivery.h"

#include "base/clock.h"

namespace penstock::service {
namespace {

constexpr const char* kLost = "pages could not be announced to the device";

}  // namespace

Status StagedDelivery::take_staging() {
    auto sender = PageSender::create(*shared_.device, *shared_.state);
    if (sender.ok()) page_sender_ = std::move(sender.value());
    return sender.status();
}

// Returns false if copies in flight have failed or do not end. All waits have then been ended,
// because the pages would never be announced.
bool StagedDelivery::look_after_copies(uint64_t now_ns) {
    if (progress_.stopped()) return false;
    const Progress::During during(progress_, Activity::kStorage);
    Status status = page_sender_->look_after(now_ns);
    for (AnswerSender* sender : shared_.answer_senders) {
        if (sender == nullptr) break;
        if (status.ok()) status = sender->flush();
        if (status.ok()) status = sender->look_after(now_ns);
    }
    if (!status.ok()) progress_.fail("copies of pages to the device failed or did not end");
    return status.ok();
}

size_t StagedDelivery::begin(uint32_t ring) {
    const uint64_t now = base::monotonic_ns();
    if (!look_after_copies(now)) return 0;
    const bool background = ring == Shared::kBackground;
    const size_t pages_max = page_sender_->begin(background);
    limit_.tell_oldest(page_sender_->oldest_lent());
    due_ns_ = now + shared_.send_period_ns;
    ring_index_ = ring;
    ring_ = &shared_.ring(ring);
    answer_sender_ = background ? nullptr : shared_.answer_senders[ring];
    return pages_max;
}

bool StagedDelivery::may_claim() {
    return answer_sender_ == nullptr || limit_.may_claim(ring_index_, page_sender_->oldest_lent());
}

void StagedDelivery::end(size_t pages) {
    page_sender_->end(pages);
    limit_.tell_oldest(page_sender_->oldest_lent());
}

bool StagedDelivery::complete_whole(const ReadRun& run) {
    if (!is_pulled(run.requests[0].kind)) return false;  // all are alike
    PageOf page = run.first;
    for (const Request& request : run.requests) {
        answer(request, destination(page), !run.source->hot());
        page.place += request.page_count;
    }
    return true;
}

void StagedDelivery::announce(const ReadRun& run, size_t pages) {
    run.visit_frames(pages, [this](const PageOf& page, size_t count) {
        page_sender_->add(page.frame(), page.place, count);
    });
}

// Tells the team where the bytes lie. Null: its pages come with their completion words.
void StagedDelivery::answer(const Request& request, const std::byte* bytes, bool waited) {
    const uint64_t slot = request.ticket & ((uint64_t{1} << ring_->shift) - 1);
    answers_.put(*answer_sender_, slot,
                 make_answer(bytes, lap_of(request.ticket, ring_->shift), waited));
    if (bytes != nullptr) page_sender_->lend(*ring_, request.ticket);
}

// Each request of a ring with answers gets one, so an answer in a slot is never older than a lap. A
// team that waits for an answer gets one even if its page was read and evicted meanwhile.
void StagedDelivery::answer_nothing(const ReadRun& run) {
    if (answer_sender_ == nullptr) return;
    for (const Request& request : run.requests) answer(request, nullptr, false);
}

void StagedDelivery::send_answers() {
    if (answers_.empty()) return;
    const Progress::During during(progress_, Activity::kStorage);
    if (!answers_.send(*answer_sender_).ok()) progress_.fail(kLost);
}

void StagedDelivery::send() {
    send_answers();
    const Progress::During during(progress_, Activity::kStorage);
    if (!page_sender_->send().ok()) progress_.fail(kLost);
    due_ns_ = base::monotonic_ns() + shared_.send_period_ns;
}

void StagedDelivery::send_due(uint64_t now_ns) {
    const bool late = now_ns >= due_ns_;
    if (late) send_answers();
    if (page_sender_->is_due(late)) send();
}

}  // namespace penstock::service
