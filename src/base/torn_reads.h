// Bytes that are read while others may write them, and are read again if they were: a race that is
// meant, which ThreadSanitizer would report.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace penstock::base {

// While it lives, ThreadSanitizer does not look at what the thread (the fiber) that made it reads
// and writes, and copies that it asks for are meant so too; its locks and atomics count as ever.
// Must end where it began, on the same thread. Costs nothing without ThreadSanitizer.
class TornReads {
public:
#if defined(__SANITIZE_THREAD__)
    TornReads() {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        ++alive_;
    }
    ~TornReads() {
        --alive_;
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
    // Whether one lives on this thread: for whoever copies for it on another.
    static bool any() { return alive_ > 0; }
#else
    TornReads() {}
    ~TornReads() {}
    static constexpr bool any() { return false; }
#endif
    TornReads(const TornReads&) = delete;
    TornReads& operator=(const TornReads&) = delete;

private:
#if defined(__SANITIZE_THREAD__)
    static inline thread_local int alive_ = 0;
#endif
};

}  // namespace penstock::base
