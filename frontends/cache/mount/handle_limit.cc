#include "handle_limit.h"

#include <algorithm>
#include <cerrno>

namespace penstock::cache_service {
namespace {

constexpr size_t kRequestsMax = 512;  // descriptors that requests and the process itself need
constexpr size_t kOthersMax = 512;    // that are left for programs that have few
constexpr size_t kFew = 16;

}  // namespace

HandleLimit::HandleLimit(size_t descriptors)
    : count_max_(descriptors - std::min(descriptors / 8, kRequestsMax)),
      count_crowded_(count_max_ - std::min(descriptors / 8, kOthersMax)) {}

std::shared_ptr<const void> HandleLimit::enter(pid_t program) {
    const std::lock_guard lock(mutex_);
    const auto own = counts_.find(program);
    const size_t count = own == counts_.end() ? 0 : own->second;
    if (count_ >= count_max_ || (count_ >= count_crowded_ && count >= kFew)) {
        errno = EMFILE;
        return nullptr;
    }
    ++count_;
    ++counts_[program];
    return {this, [this, program](const void*) { leave(program); }};
}

void HandleLimit::leave(pid_t program) {
    const std::lock_guard lock(mutex_);
    --count_;
    const auto own = counts_.find(program);
    if (--own->second == 0) counts_.erase(own);
}

}  // namespace penstock::cache_service
