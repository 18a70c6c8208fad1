// mmap, and the handler of SIGBUS; see text_mapping.h.
#include "scan/text_mapping.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

namespace penstock::scan {
namespace {

// One mapping. Written by the owner of the mapping; the handler, in whichever thread touched the
// bytes, reads `begin` and `size` and sets `damaged`. A thread touches bytes only while their slot
// stands, so relaxed loads see it.
struct Slot {
    std::atomic<bool> taken;
    std::atomic<uintptr_t> begin;
    std::atomic<size_t> size;
    std::atomic<bool> damaged;
};

Slot slots[kMappingsMax];
struct sigaction earlier;
size_t page_size;  // of the OS; written before the handler is set

Slot* slot_of(uintptr_t address) {
    for (Slot& slot : slots) {
        const uintptr_t begin = slot.begin.load(std::memory_order_relaxed);
        if (begin != 0 && address - begin < slot.size.load(std::memory_order_relaxed)) return &slot;
    }
    return nullptr;
}

void pass_on(int signal_number, siginfo_t* info, void* context) {
    if ((earlier.sa_flags & SA_SIGINFO) != 0)
        earlier.sa_sigaction(signal_number, info, context);
    else if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN)
        earlier.sa_handler(signal_number);
    else
        signal(signal_number, SIG_DFL);  // the instruction runs again and ends the process
}

// Only system calls: it interrupts the search. libc's mmap is not called, because TSan takes it for
// a write of the page, which other threads may be reading at the time.
void replace_page(int signal_number, siginfo_t* info, void* context) {
    const int saved = errno;
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    Slot* const slot = slot_of(address);
    void* const page = reinterpret_cast<void*>(address / page_size * page_size);
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    const bool replaced = slot != nullptr && syscall(SYS_mmap, page, page_size, PROT_READ, kFlags,
                                                     -1, 0) == reinterpret_cast<long>(page);
    if (replaced)
        slot->damaged.store(true, std::memory_order_relaxed);
    else
        pass_on(signal_number, info, context);
    errno = saved;
}

void set_handler() {
    static std::once_flag once;
    std::call_once(once, [] {
        page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        struct sigaction action {};
        action.sa_sigaction = replace_page;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGBUS, &action, &earlier);
    });
}

}  // namespace

Result<TextMapping> TextMapping::create(int descriptor, size_t size) {
    set_handler();
    TextMapping mapping;
    for (size_t i = 0; i < kMappingsMax && mapping.slot_ == kMappingsMax; ++i)
        if (!slots[i].taken.exchange(true, std::memory_order_acquire)) mapping.slot_ = i;
    if (mapping.slot_ == kMappingsMax) return Status(ENFILE, "mmap", "too many files are mapped");
    void* const bytes = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (bytes == MAP_FAILED) return Status(errno, "mmap", "");
    Slot& slot = slots[mapping.slot_];
    slot.damaged.store(false, std::memory_order_relaxed);
    slot.size.store(size, std::memory_order_relaxed);
    slot.begin.store(reinterpret_cast<uintptr_t>(bytes), std::memory_order_relaxed);
    return mapping;
}

TextMapping::TextMapping(TextMapping&& other) noexcept { *this = std::move(other); }

TextMapping& TextMapping::operator=(TextMapping&& other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
}

TextMapping::~TextMapping() {
    if (slot_ == kMappingsMax) return;
    Slot& slot = slots[slot_];
    if (const uintptr_t begin = slot.begin.exchange(0, std::memory_order_relaxed); begin != 0)
        munmap(reinterpret_cast<void*>(begin), slot.size.load(std::memory_order_relaxed));
    slot.taken.store(false, std::memory_order_release);  // partner: the exchange in create()
}

const uint8_t* TextMapping::bytes() const {
    if (slot_ == kMappingsMax) return nullptr;
    return reinterpret_cast<const uint8_t*>(slots[slot_].begin.load(std::memory_order_relaxed));
}

size_t TextMapping::size() const {
    return slot_ == kMappingsMax ? 0 : slots[slot_].size.load(std::memory_order_relaxed);
}

bool TextMapping::damaged() const {
    return slot_ != kMappingsMax && slots[slot_].damaged.load(std::memory_order_relaxed);
}

}  // namespace penstock::scan
