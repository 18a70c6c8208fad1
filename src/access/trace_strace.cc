// Parses strace: follows descriptors and positions through the calls of processes and threads.
//
// A position belongs to an open file, which descriptors share after dup and fork. A table of
// descriptors belongs to a process, and its threads share it. A thread whose clone() was not traced
// counts as one of the first process.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "access/trace_call.h"
#include "access/trace_lines.h"

namespace penstock::access {
namespace {

// An open file description.
struct OpenFile {
    std::string path;
    std::optional<int64_t> position;  // none: it is not known
    bool append = false;
};

using Descriptors = std::map<int64_t, std::shared_ptr<OpenFile>>;

// A process or a thread.
struct Task {
    std::shared_ptr<Descriptors> descriptors;
    uint64_t rank = 0;       // in order of appearance
    std::string unfinished;  // a call interrupted by the output of another
    uint64_t unfinished_ns = 0;
};

// Limit of tasks alive times descriptors of one of them: what copies at fork may take.
constexpr size_t kDescriptorsMax = 1 << 18;

// Limit of causes that name files; what more files cause is counted as one.
constexpr size_t kNamedCausesMax = 64;

// With -ttt times count from 1970 on; with -r, from the line before on.
constexpr uint64_t kLongAgoNs = 1'000'000'000'000'000;  // 12 January 1970

constexpr std::string_view kUnfinished = "<unfinished ...>";

class StraceLines : public TraceLines {
public:
    Status line(std::string_view text) override {
        const auto head = call_head(text);
        if (!head) {
            builder.skip("a line without a time (strace -ttt)");
            return {};
        }
        if (is_relative(head->time_ns))
            return {EINVAL, "trace", "times since the line before (strace -r): record with -ttt"};
        std::string_view rest = head->rest;
        if (rest.starts_with("---") || rest.starts_with("+++")) {
            builder.skip("a signal or an exit");
            if (rest.starts_with("+++")) ended(head->process);
            return {};
        }
        Task* const known = task_of(head->process);
        if (known == nullptr)
            return {E2BIG, "trace", "there are more open files than can be followed"};
        Task& task = *known;
        if (rest.ends_with(kUnfinished)) {
            rest.remove_suffix(kUnfinished.size());
            if (!task.unfinished.empty()) builder.skip("a call that never ended");
            task.unfinished = rest;
            task.unfinished_ns = head->time_ns;
            if (forks(rest)) forking_.insert(head->process);
            return {};
        }
        uint64_t time_ns = head->time_ns;
        std::string joined;
        if (rest.starts_with("<... ")) {
            constexpr std::string_view kResumed = " resumed>";
            const size_t at = rest.find(kResumed);
            if (at == std::string_view::npos || task.unfinished.empty()) {
                builder.skip("the end of a call whose beginning is not there");
                return {};
            }
            joined = task.unfinished + std::string(rest.substr(at + kResumed.size()));
            time_ns = task.unfinished_ns;
            task.unfinished.clear();
            forking_.erase(head->process);
            rest = joined;
        }
        const auto call = parse_call(rest);
        if (!call) {
            builder.skip("a call that is not well written");
            return {};
        }
        return follow(task, *call, time_ns);
    }

    Status finish() override {
        for (const auto& [process, task] : tasks_) {
            if (!task.unfinished.empty()) builder.skip("a call that never ended");
        }
        if (at_positions_ > 0 && !seeks_ && !complete_) {
            builder.trace.warnings.push_back(
                {"no lseek in the trace: if the program seeks, offsets are wrong (record all "
                 "calls)",
                 at_positions_, 0});
        }
        return {};
    }

private:
    // Returns whether times are those since the line before: the first is 0, or one falls.
    bool is_relative(uint64_t time_ns) {
        const bool first = builder.trace.lines == 1;
        const bool relative = time_ns < kLongAgoNs && (first ? time_ns == 0 : time_ns < last_ns_);
        last_ns_ = time_ns;
        return relative;
    }

    static bool forks(std::string_view call) {
        return call.starts_with("clone") || call.starts_with("fork") || call.starts_with("vfork");
    }

    // Returns null if a limit is exceeded.
    Task* task_of(uint64_t process) {
        const auto known = tasks_.find(process);
        if (known != tasks_.end()) return &known->second;
        // A child may print before the clone() that made it has returned.
        if (!forking_.empty()) {
            const Task& parent = tasks_.at(*forking_.begin());
            return make_task(process, parent.descriptors, parent.unfinished);
        }
        if (!first_) first_ = std::make_shared<Descriptors>();
        return make_task(process, first_, "CLONE_FILES");
    }

    Task* make_task(uint64_t process, const std::shared_ptr<Descriptors>& parent,
                    std::string_view flags) {
        const bool shared = flags.find("CLONE_FILES") != std::string_view::npos;
        const size_t copied = shared ? 1 : parent->size() + 1;
        if ((tasks_.size() + 1) * copied > kDescriptorsMax) return nullptr;
        Task& task = tasks_[process];
        task.rank = ranks_++;
        task.descriptors = shared ? parent : std::make_shared<Descriptors>(*parent);
        return &task;
    }

    void ended(uint64_t process) {
        const auto task = tasks_.find(process);
        if (task == tasks_.end()) return;
        if (!task->second.unfinished.empty()) builder.skip("a call that never ended");
        forking_.erase(process);
        tasks_.erase(task);
    }

    // Returns the open file of a descriptor. If its open was not traced, it has no position.
    static OpenFile& open_file(Task& task, const CallDescriptor& descriptor) {
        std::shared_ptr<OpenFile>& file = (*task.descriptors)[descriptor.number];
        if (!file || file->path != descriptor.path) {
            file = std::make_shared<OpenFile>();
            file->path = descriptor.path;
        }
        return *file;
    }

    Status follow(Task& task, const Call& call, uint64_t time_ns) {
        note(call.name);
        if (call.failed) {
            builder.skip("a call that failed");
            return {};
        }
        const std::string_view name = call.name;
        if (name == "open" || name == "openat" || name == "openat2" || name == "creat") {
            opened(task, call);
        } else if (name == "close") {
            const auto descriptor = argument(call, 0);
            if (descriptor) task.descriptors->erase(descriptor->number);
        } else if (name == "dup" || name == "dup2" || name == "dup3" || name == "fcntl") {
            duplicated(task, call);
        } else if (name == "lseek" || name == "_llseek") {
            const auto descriptor = argument(call, 0);
            const auto position = to_signed(call.result);
            if (descriptor && position) open_file(task, *descriptor).position = *position;
        } else if (forks(name)) {
            const auto child = to_unsigned(call.result);
            if (!child || tasks_.contains(*child)) return {};
            std::string flags;
            for (const std::string_view one : call.arguments) flags += one;
            const auto parent = task.descriptors;
            if (make_task(*child, parent, flags) == nullptr) {
                return {E2BIG, "trace", "there are more open files than can be followed"};
            }
        } else {
            return moved(task, call, time_ns);
        }
        return {};
    }

    // Notes whether seeks would be in the trace. If strace was told to leave out calls, it has none
    // of those that each program makes and that no filter for files lets through.
    void note(std::string_view name) {
        seeks_ = seeks_ || name == "lseek" || name == "_llseek";
        complete_ = complete_ || name == "brk" || name == "mprotect" || name == "munmap" ||
                    name == "exit_group";
    }

    // Counts a call that is not followed. If it moves bytes of files, they are named.
    void pass_over(const Call& call) {
        constexpr std::string_view kMovers[] = {
            "copy_file_range", "sendfile",          "splice",        "mmap",
            "io_submit",       "io_getevents",      "io_pgetevents", "io_uring_setup",
            "io_uring_enter",  "io_uring_register",
        };
        const bool moves = std::ranges::find(kMovers, call.name) != std::end(kMovers);
        if (!moves) return builder.skip("a call that is not followed");
        std::string files;
        for (const std::string_view one : call.arguments) {
            // glibc's loader maps libraries like this.
            if (call.name == "mmap" && one.find("MAP_DENYWRITE") != std::string_view::npos)
                return builder.skip("a call that is not followed");
            const std::string path = file_in(one);
            if (!path.empty()) files += (files.empty() ? " of " : " and ") + path;
        }
        if (files.empty() && !call.name.starts_with("io_"))
            return builder.skip("a call that is not followed");
        const std::string name(call.name);
        if (named_.size() >= kNamedCausesMax && !named_.contains(name + files))
            files = " of other files";
        named_.insert(name + files);
        builder.skip(name + files + ", which is not followed");
    }

    // Returns the path of the file that an argument names by its descriptor, or "".
    static std::string file_in(std::string_view argument) {
        constexpr std::string_view kInStructure = "aio_fildes=";
        if (const size_t at = argument.find(kInStructure); at != std::string_view::npos) {
            argument.remove_prefix(at + kInStructure.size());
            argument = argument.substr(0, argument.find('>') + 1);
        }
        const auto descriptor = call_descriptor(argument);
        return descriptor && descriptor->file() ? descriptor->path : std::string();
    }

    static std::optional<CallDescriptor> argument(const Call& call, size_t index) {
        if (call.arguments.size() <= index) return std::nullopt;
        return call_descriptor(call.arguments[index]);
    }

    static void opened(Task& task, const Call& call) {
        const auto descriptor = call_descriptor(call.result);
        if (!descriptor) return;
        auto file = std::make_shared<OpenFile>();
        file->path = descriptor->path;
        file->position = 0;
        for (const std::string_view one : call.arguments) {
            // The quoted name of the file does not count.
            if (!one.starts_with('"') && one.find("O_APPEND") != std::string_view::npos) {
                file->append = true;
            }
        }
        (*task.descriptors)[descriptor->number] = std::move(file);
    }

    static void duplicated(Task& task, const Call& call) {
        if (call.name == "fcntl" &&
            (call.arguments.size() < 2 || !call.arguments[1].starts_with("F_DUPFD"))) {
            return;
        }
        const auto from = argument(call, 0);
        const auto to = call_descriptor(call.result);
        if (!from || !to) return;
        open_file(task, *from);
        (*task.descriptors)[to->number] = (*task.descriptors)[from->number];
    }

    // Handles a call that may have moved bytes of a file.
    Status moved(Task& task, const Call& call, uint64_t time_ns) {
        struct Kind {
            std::string_view name;
            bool write;
            int offset_at;  // index of the argument; -1: at the position
        };
        constexpr Kind kKinds[] = {
            {"read", false, -1},  {"readv", false, -1},  {"write", true, -1},
            {"writev", true, -1}, {"pread64", false, 3}, {"pread", false, 3},
            {"preadv", false, 3}, {"preadv2", false, 3}, {"pwrite64", true, 3},
            {"pwrite", true, 3},  {"pwritev", true, 3},  {"pwritev2", true, 3},
        };
        const Kind* kind = nullptr;
        for (const Kind& one : kKinds) kind = one.name == call.name ? &one : kind;
        if (kind == nullptr) {
            pass_over(call);
            return {};
        }
        const auto descriptor = argument(call, 0);
        const auto size = to_signed(call.result);
        if (!descriptor || !size) {
            builder.skip("a call that is not well written");
            return {};
        }
        if (!descriptor->file()) {
            builder.skip(descriptor->path.empty() ? "a descriptor without a path (strace -y)"
                                                  : "a descriptor of no file");
            return {};
        }
        std::optional<int64_t> offset;
        if (kind->offset_at >= 0) {
            const auto index = static_cast<size_t>(kind->offset_at);
            if (call.arguments.size() > index) offset = to_signed(call.arguments[index]);
            if (!offset) {
                builder.skip("a call that is not well written");
                return {};
            }
        }
        // preadv2 and pwritev2 with -1 use the position.
        const bool at_position = !offset || (*offset == -1 && kind->name.ends_with("v2"));
        if (at_position && !place(open_file(task, *descriptor), kind->write, *size, &offset)) {
            return {};
        }
        return record(*descriptor, kind->write, task.rank, {*offset, *size}, time_ns);
    }

    // Finds the offset of a call at the position, and moves the position. Returns false if not
    // known.
    bool place(OpenFile& file, bool write, int64_t size, std::optional<int64_t>* offset) {
        if (write && file.append) {
            file.position.reset();
            builder.skip("a write that appends: its offset is not known");
            return false;
        }
        if (!file.position || !in_a_file(*file.position, size)) {
            file.position.reset();
            builder.skip("the position of the descriptor is not known");
            return false;
        }
        ++at_positions_;
        *offset = *file.position;
        *file.position += size;
        return true;
    }

    Status record(const CallDescriptor& descriptor, bool write, uint64_t rank, const Access& access,
                  uint64_t time_ns) {
        if (access.size == 0) {
            builder.skip("a call that moved no bytes");
            return {};
        }
        if (!in_a_file(access.offset, access.size)) {
            builder.skip("a call that lies in no file");
            return {};
        }
        return builder.add(descriptor.path, write ? Operation::kWrite : Operation::kRead, 0, rank,
                           access, time_ns);
    }

    std::map<uint64_t, Task> tasks_;  // by process number; those that have not ended
    std::set<uint64_t> forking_;      // those with an unfinished clone() or fork()
    std::shared_ptr<Descriptors> first_;
    uint64_t ranks_ = 0;
    uint64_t last_ns_ = 0;         // of the line before
    std::set<std::string> named_;  // causes that name files
    uint64_t at_positions_ = 0;    // accesses at the position of a descriptor
    bool seeks_ = false, complete_ = false;
};

}  // namespace

std::unique_ptr<TraceLines> strace_lines() { return std::make_unique<StraceLines>(); }

}  // namespace penstock::access
