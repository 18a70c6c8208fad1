// Goal: no bytes whatever, read as JSON, in binary form, as a signature or as a trace, crash the
// readers, and what they take for programs is sound: it comes back from both forms, its cursor
// keeps within bounds, and its canonical form has the same accesses. What is read of a trace comes
// back from our own form.
//
// A libFuzzer target; `make nightly` builds and runs it (tests/run.py, stage fuzz). With
// PENSTOCK_CANARY the binary reader lacks a check of a length, and the fuzzer must find that. The
// first byte says which form; checksum and frame are put right, or nothing behind them were tried.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "access/binary.h"
#include "access/canonical.h"
#include "access/cursor.h"
#include "access/detector.h"
#include "access/json.h"
#include "access/signature_text.h"
#include "access/trace.h"
#include "access/validate.h"
#include "base/check.h"

namespace penstock::access {
namespace {

void walk(const Program& program) {
    Cursor cursor(program, program.key.first_rank);
    const uint64_t count = cursor.count().value_or(UINT64_MAX);
    for (const uint64_t position : {uint64_t{0}, count / 3, count - 1, count}) {
        const bool there = cursor.seek(position);
        PENSTOCK_CHECK(there == (position < count) || cursor.random(), "seek knows the end");
        for (int i = 0; i < 20; ++i) {
            const std::optional<Access> access = cursor.next();
            if (!access) break;
            PENSTOCK_CHECK(access->offset >= 0 && access->size >= 0, "accesses are in bounds");
            const uint64_t last = static_cast<uint64_t>(access->offset) +
                                  static_cast<uint64_t>(access->size) - 1;
            PENSTOCK_CHECK(last < INT64_MAX || access->size == 0, "accesses end below 2^63");
            PENSTOCK_CHECK(access->size == 0 || cursor.contains(last), "contains what it reads");
        }
    }
}

void compare_canonical(const Program& program) {
    const Program folded = canonical(program);
    PENSTOCK_CHECK(validate(folded).ok(), "the canonical form is valid");
    Cursor one(program, program.key.first_rank), other(folded, program.key.first_rank);
    PENSTOCK_CHECK(one.count() == other.count(), "the canonical form has as many accesses");
    const uint64_t count = one.count().value_or(1000);
    for (const uint64_t position : {uint64_t{0}, count / 3, count - 1}) {
        one.seek(position);
        other.seek(position);
        for (int i = 0; i < 20; ++i) {
            const std::optional<Access> access = one.next();
            PENSTOCK_CHECK(access == other.next(), "the canonical form has the same accesses");
            if (!access) break;
        }
    }
}

void read_signature(std::string_view text) {
    auto pattern = parse_pattern_signature(text);
    if (pattern.ok()) {
        auto again = parse_pattern_signature(write_pattern_signature(pattern.value()));
        PENSTOCK_CHECK(again.ok() && again.value() == pattern.value(), "its text gives it back");
    }
    auto program = parse_trace_signature(text);
    if (!program.ok()) return;
    walk(program.value());
    auto written = write_trace_signature(program.value());
    PENSTOCK_CHECK(written.ok() || written.status().error_number() == ENOTSUP, "or says why not");
    if (!written.ok()) return;
    auto again = parse_trace_signature(written.value());
    PENSTOCK_CHECK(again.ok(), "a signature that was written can be read");
    PENSTOCK_CHECK(Cursor(again.value()).count() == Cursor(program.value()).count(),
                   "with as many accesses");
}

void expect_sound(const std::vector<Program>& programs) {
    for (const Program& program : programs) {
        PENSTOCK_CHECK(validate(program).ok(), "what was read is valid");
        walk(program);
        compare_canonical(program);
        (void)pattern_of(program, program.key.first_rank);
    }
    auto from_text = parse_json(write_json(programs));
    PENSTOCK_CHECK(from_text.ok() && from_text.value() == programs, "JSON gives it back");
    const std::vector<uint8_t> bytes = write_binary(programs);
    auto from_bytes = parse_binary(bytes);
    PENSTOCK_CHECK(from_bytes.ok() && from_bytes.value() == programs, "binary gives it back");
}

// The same in two chunks, cut anywhere, as in one.
void read_as_trace(std::string_view text) {
    const TraceForm form = trace_form(text);
    TraceReader reader(form);
    const size_t cut = text.empty() ? 0 : text.size() * static_cast<uint8_t>(text.back()) / 256;
    (void)reader.read(text.substr(0, cut));
    (void)reader.read(text.substr(cut));
    const bool ok = reader.finish().ok();
    const Trace trace = reader.take();
    PENSTOCK_CHECK(ok == read_trace(form, text).ok(), "chunks make no difference");
    uint64_t accesses = 0;
    for (const TraceStream& stream : trace.streams) {
        accesses += stream.accesses.size();
        PENSTOCK_CHECK(stream.times_ns.size() == stream.accesses.size(), "each has its time");
        PENSTOCK_CHECK(std::is_sorted(stream.times_ns.begin(), stream.times_ns.end()),
                       "time never falls");
        for (const Access& access : stream.accesses) {
            PENSTOCK_CHECK(
                access.offset >= 0 && access.size >= 0 && access.size <= INT64_MAX - access.offset,
                "accesses are in bounds");
        }
        const Program found = analyse(stream.accesses, stream.times_ns);
        PENSTOCK_CHECK(!validate(found).ok() || Cursor(found).count() == stream.accesses.size(),
                       "all are told");
    }
    PENSTOCK_CHECK(accesses == trace.accesses, "all are counted");
    auto again = read_trace(TraceForm::kPenstock, write_trace(trace.streams));
    PENSTOCK_CHECK(again.ok() && again.value().accesses == accesses, "our own form gives it back");
}

}  // namespace
}  // namespace penstock::access

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace penstock::access;
    if (size == 0) return 0;
    const std::span<const uint8_t> input(data + 1, size - 1);
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    if (data[0] % 4 == 0) {
        auto read = parse_json(text);
        if (read.ok()) expect_sound(read.value());
        return 0;
    }
    if (data[0] % 4 == 2) {
        read_signature(text);
        return 0;
    }
    if (data[0] % 4 == 3) {
        read_as_trace(text);
        return 0;
    }
    std::vector<uint8_t> bytes = {'P', 'S', 'A', 'P', kBinaryVersion};
    bytes.insert(bytes.end(), input.begin(), input.end());
    const uint32_t sum = checksum(bytes);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(sum >> 8 * i));
    auto read = parse_binary(bytes);
    if (!read.ok()) return 0;
    expect_sound(read.value());
    PENSTOCK_CHECK(write_binary(read.value()) == bytes, "a program has one encoding");
    return 0;
}
