// Bytes that are read while others may write them, and are read again if they were: a race that is
// meant, which ThreadSanitizer would report.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace penstock::base {

// While it lives, ThreadSanitizer does not look at what the thread (the fiber) that made it reads
// and writes; its locks and atomics count as ever. Must end where it began. Costs nothing without
// ThreadSanitizer.
class TornReads {
public:
#if defined(__SANITIZE_THREAD__)
    TornReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
    ~TornReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
#else
    TornReads() {}
    ~TornReads() {}
#endif
    TornReads(const TornReads&) = delete;
    TornReads& operator=(const TornReads&) = delete;
};

}  // namespace penstock::base
