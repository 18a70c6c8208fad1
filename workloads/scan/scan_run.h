// One scan of many texts: opens them, cuts them into strides, keeps two batches in flight, adds up
// the records.
//
// The part of the Scanner that lives as long as one scan(). A text that grows while it is scanned
// is followed to its end as it is then, unless it is a range. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "scan/batch_queue.h"
#include "scan/line_reader.h"
#include "scan/scan.h"
#include "scan/slice_record.h"
#include "scan/text_source.h"
#include "scan/tree_walk.h"

namespace penstock::scan {

// The texts of one scan: the ranges, then what the paths mean.
struct ScanInput {
    std::vector<std::string> paths;
    std::vector<TextRange> ranges;
};

class ScanRun {
public:
    // `overlap`: bytes that a stride looks past its end, the longest pattern less 1.
    ScanRun(FileSystem* files, BatchQueue* queue, ScanListener* listener,
            const ScanOptions& options, uint64_t overlap, ScanInput input);

    Status run();
    // Adds what this run did.
    void add_to(ScanReport* report) const;

private:
    using Clock = std::chrono::steady_clock;

    struct Text {
        TextResult result;
        TextSource source;
        Descriptor descriptor = -1;
        uint64_t size = 0;         // bytes that are planned for
        uint64_t next_offset = 0;  // of the next stride to plan
        uint64_t last_number = 0;  // of the last line that was told
        LineFold fold;
        bool is_range = false;  // its end is fixed
    };
    // A text's strides in a batch, or with none of them an outcome that keeps its place in the
    // order.
    struct Part {
        std::shared_ptr<Text> text;
        size_t first_stride = 0, stride_count = 0;
        bool last = false;
    };

    std::shared_ptr<Text> open_next();
    Status open_text(Text* text);
    Status open_range(const TextRange& range, Text* text);
    Status open_on_device(Text* text);
    bool plan(Text* text, std::vector<StrideJob>* jobs) const;
    [[nodiscard]] bool is_cut(const Text& text, const StrideJob& job) const;

    Status fill(Slot slot);
    Status wait(Slot slot);
    Status settle(Slot slot);
    Status add_part(Slot slot, const Part& part, bool* grown);
    Status add_stride(Slot slot, size_t stride, Text* text);
    Status tell_lines(Slot slot, const StrideJob& job, const StrideRecord& record, Text* text);
    Status follow(Text* text);
    static bool fail_damaged(Text* text);
    void finish(Text* text);
    bool tick();
    void stop();

    FileSystem* files_;
    BatchQueue* queue_;
    ScanListener* listener_;
    const ScanOptions& options_;
    uint64_t overlap_;
    std::vector<TextRange> ranges_;
    size_t next_range_ = 0;
    TreeWalk walk_;
    std::shared_ptr<Text> current_;  // not planned to its end yet
    std::vector<Part> parts_[2];     // of the two batches in flight
    LineReader lines_;
    ScanReport report_;
    uint64_t known_size_ = 0;
    BlockWords before_{};  // totals of earlier runs
    bool stopped_ = false;
    Clock::time_point began_ = Clock::now();
};

}  // namespace penstock::scan
