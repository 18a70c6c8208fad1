#include "handle_limit.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

namespace penstock::cache_service {
namespace {

constexpr size_t kRequestsMax = 512;  // descriptors that requests and the process itself need
constexpr size_t kReserveMax = 512;
constexpr size_t kFew = 16;  // that each gets of the reserve

// Returns the number of the program that a thread belongs to; that of the thread where it has
// ended.
pid_t program_of(pid_t thread) {
    std::ifstream status("/proc/" + std::to_string(thread) + "/status");
    pid_t program = thread;
    for (std::string word; status >> word;)
        if (word == "Tgid:" && status >> program) break;
    return program;
}

}  // namespace

HandleLimit::HandleLimit(size_t descriptors, bool serves_all_users)
    : serves_all_users_(serves_all_users),
      count_max_(descriptors - std::min(descriptors / 8, kRequestsMax)),
      count_common_(count_max_ - std::min(descriptors / 8, kReserveMax)) {}

std::shared_ptr<const void> HandleLimit::enter(uid_t user, pid_t thread) {
    {
        const std::lock_guard lock(mutex_);
        if (count_ < count_common_) {
            ++count_;
            return {this, [this](const void*) { leave(); }};
        }
    }
    const bool by_user = serves_all_users_ && user != 0;
    const Owner owner = by_user ? Owner(Kind::kUser, user)
                                : Owner(Kind::kProgram, program_of(thread));
    const std::lock_guard lock(mutex_);
    size_t& own = of_reserve_[owner];
    if (count_ >= count_max_ || own >= kFew) {
        if (own == 0) of_reserve_.erase(owner);
        errno = EMFILE;
        return nullptr;
    }
    ++count_;
    ++own;
    return {this, [this, owner](const void*) { leave(owner); }};
}

void HandleLimit::leave() {
    const std::lock_guard lock(mutex_);
    --count_;
}

void HandleLimit::leave(const Owner& owner) {
    const std::lock_guard lock(mutex_);
    --count_;
    const auto own = of_reserve_.find(owner);
    if (--own->second == 0) of_reserve_.erase(own);
}

}  // namespace penstock::cache_service
