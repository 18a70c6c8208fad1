// Marks reads of bytes that other threads may write meanwhile; such bytes are read again. The race
// is intended, and ThreadSanitizer would report it.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace penstock::base {

// While an object exists, ThreadSanitizer ignores the reads and writes of the thread (the fiber)
// that made it, and the copies that the thread requests. Locks and atomics still count. It must end
// on the same thread and fiber. It costs nothing without ThreadSanitizer.
class TornReads {
public:
#if defined(__SANITIZE_THREAD__)
    static constexpr bool kMarks = true;
    // With `marks` false it marks nothing.
    explicit TornReads(bool marks = true) : marks_(marks) {
        if (!marks_) return;
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        ++alive_;
    }
    ~TornReads() {
        if (!marks_) return;
        --alive_;
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
    // Returns whether one exists on this thread, for another thread that copies on its behalf.
    static bool any() { return alive_ > 0; }
#else
    static constexpr bool kMarks = false;
    explicit TornReads(bool = true) {}
    ~TornReads() {}
    static constexpr bool any() { return false; }
#endif
    TornReads(const TornReads&) = delete;
    TornReads& operator=(const TornReads&) = delete;

private:
#if defined(__SANITIZE_THREAD__)
    const bool marks_;
    static inline thread_local int alive_ = 0;
#endif
};

}  // namespace penstock::base
