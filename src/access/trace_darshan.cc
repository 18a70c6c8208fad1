// Parses Darshan's DXT text: blocks of one file and rank, with one line per segment.
//
//      # DXT, file_id: 14388265063268455899, file_name: /scratch/a b
//      # DXT, rank: 1, hostname: node
//      # DXT, write_count: 0, read_count: 2
//      # Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)
//       X_POSIX       1   read        0               0         4096      0.0100      0.0110
//
// With Lustre "[OST]" follows, and numbers in brackets. From version 3.5 on the last column is
// "Pthread-ID", or -1 where the log has none.
#include <map>
#include <string>

#include "access/trace_lines.h"

namespace penstock::access {
namespace {

class DarshanLines : public TraceLines {
public:
    Status line(std::string_view text) override {
        if (text.empty()) return {};
        if (text.front() == '#') {
            comment(text.substr(1));
            return {};
        }
        return segment(text);
    }

    Status finish() override {
        if (!seen_)
            return {EINVAL, "trace", "no \"# DXT\" line: not the text of darshan-dxt-parser"};
        end_block();
        return {};
    }

private:
    // Segments that were announced are missing: the text was cut.
    void end_block() {
        builder.skip("a segment that its block announced is not there", announced_);
        announced_ = 0;
    }

    void comment(std::string_view text) {
        constexpr std::string_view kName = "file_name: ", kWrites = "write_count: ",
                                   kReads = "read_count: ";
        if (text.find("incomplete") != std::string_view::npos) {
            builder.skip("the log says that it is incomplete");
        }
        if (text.starts_with(" Module"))
            tells_threads_ = text.find("Pthread-ID") != std::string_view::npos;
        if (!text.starts_with(" DXT, ")) return;
        seen_ = true;
        if (const size_t at = text.find(kName); at != std::string_view::npos) {
            end_block();
            file_ = text.substr(at + kName.size());
            return;
        }
        const size_t writes = text.find(kWrites), reads = text.find(kReads);
        if (writes == std::string_view::npos || reads == std::string_view::npos) return;
        std::string_view count = text.substr(writes + kWrites.size());
        const auto written = to_unsigned(count.substr(0, count.find(',')));
        const auto read = to_unsigned(text.substr(reads + kReads.size()));
        if (!written || !read || *written > kTraceAccessesMax || *read > kTraceAccessesMax) {
            builder.skip("the counts of a block are no numbers");
            return;
        }
        announced_ = *written + *read;
    }

    Status segment(std::string_view text) {
        const std::string_view module = take_word(text);
        if (module != "X_POSIX" && module != "X_MPIIO") {
            builder.skip("not a segment of X_POSIX or X_MPIIO");
            return {};
        }
        if (announced_ > 0) --announced_;
        const auto rank = to_unsigned(take_word(text));
        const std::string_view direction = take_word(text);
        const auto number = to_unsigned(take_word(text));
        const auto offset = to_signed(take_word(text));
        const auto size = to_signed(take_word(text));
        const auto start_ns = seconds_to_ns(take_word(text));
        const auto end_ns = seconds_to_ns(take_word(text));
        const bool read = direction == "read";
        if (!rank || (!read && direction != "write") || !number || !offset || !size || !start_ns ||
            !end_ns) {
            builder.skip("a segment that is not well written");
        } else if (!in_a_file(*offset, *size)) {
            builder.skip("a segment that lies in no file");
        } else if (*size == 0) {
            builder.skip("a segment of no bytes");
        } else if (file_.empty()) {
            builder.skip("a segment before any file name");
        } else {
            return builder.add(file_, read ? Operation::kRead : Operation::kWrite,
                               module == "X_MPIIO" ? 1 : 0, *rank, {*offset, *size}, *start_ns,
                               thread_of(*rank, text));
        }
        return {};
    }

    // Returns the number of the segment's thread in its rank. `rest`: the columns after the times.
    uint64_t thread_of(uint64_t rank, std::string_view rest) {
        if (!tells_threads_) return 0;
        std::string_view last;
        for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest))
            last = word;
        const auto id = to_unsigned(last);
        if (!id) return 0;
        std::map<uint64_t, uint64_t>& threads = threads_[rank];
        return threads.try_emplace(*id, threads.size()).first->second;
    }

    std::string file_;
    uint64_t announced_ = 0;  // segments of the block that have not come yet
    bool seen_ = false;
    bool tells_threads_ = false;
    std::map<uint64_t, std::map<uint64_t, uint64_t>> threads_;  // of each rank: numbers by id
};

}  // namespace

std::unique_ptr<TraceLines> darshan_lines() { return std::make_unique<DarshanLines>(); }

}  // namespace penstock::access
