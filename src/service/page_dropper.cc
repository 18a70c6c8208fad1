#include "service/page_dropper.h"

#include <chrono>

#include "service/drop_pages.h"

namespace penstock::service {
namespace {

constexpr std::chrono::seconds kLimit{5};

}  // namespace

Result<std::unique_ptr<PageDropper>> PageDropper::create(backend::Device* device,
                                                         FileSystemState* state) {
    auto call = KernelCall::create(device, kDropPagesKey);
    if (!call.ok()) return call.status();
    return std::unique_ptr<PageDropper>(new PageDropper(device, state, std::move(call.value())));
}

bool PageDropper::drop(uint64_t first, uint64_t count) {
    unsigned long long kept = 0;
    return possible() &&
           call_->run<decltype(drop_pages)>(kDropThreads, kLimit, &kept, state_, first, count)
               .ok() &&
           kept == 0;
}

}  // namespace penstock::service
