// penstock.File: host reads and writes for Python, with KvikIO's names and argument order.
//
// Small ones take the short way: buffer, system call, count. Others are begun as futures and
// waited for, so that Ctrl-C is seen.
#include "penstock/file.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>
#include <vector>

#include "core.h"
#include "future.h"
#include "observer.h"
#include "python_file.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

// A blocking call for at most so much is not interrupted by signals: milliseconds, unless storage
// stands still, and then a thread inside a system call cannot be called back. To have another one
// make it costs each such read the waking of a thread.
constexpr uint64_t kUninterruptedSize = 1 << 20;
// How long Ctrl-C waits for what of a blocking call cannot be dropped any more.
constexpr auto kInterruptLimit = std::chrono::seconds(5);

uint64_t natural(nb::handle value, const char* what) {
    const nb::object whole = nb::steal(PyNumber_Index(value.ptr()));
    if (!whole.is_valid()) throw nb::python_error();
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(whole.ptr(), &overflow);
    if (number < 0 || overflow < 0) {
        if (overflow == 0 && PyErr_Occurred() != nullptr) throw nb::python_error();
        if (overflow <= 0) throw nb::value_error((std::string(what) + " is negative").c_str());
    }
    if (overflow > 0) throw nb::value_error((std::string(what) + " is beyond 2^63").c_str());
    return static_cast<uint64_t>(number);
}

// Where a read or write goes: as asked, or to the end of a file that appends, which takes no
// offset. Throws ValueError.
uint64_t offset_of(const PythonFile& file, Use use, nb::handle offset) {
    if (use == Use::kRead || !file.appends()) return natural(offset, "file_offset");
    if (offset.is_none()) return kAtEnd;
    throw nb::value_error(
        ("file_offset: mode '" + file.mode() + "' writes to the end of the file; give none")
            .c_str());
}
uint64_t optional_offset_of(const PythonFile& file, Use use, nb::handle offset) {
    if (use == Use::kWrite && offset.is_none() && !file.appends()) return 0;
    return offset_of(file, use, offset);
}

// `size` bytes of `target`, or all of them.
uint64_t size_within(const Target& target, nb::handle size) {
    if (size.is_none()) return target.size;
    const uint64_t asked = natural(size, "size");
    if (asked > target.size)
        throw nb::value_error(("size " + std::to_string(asked) + " is beyond the buffer's " +
                               std::to_string(target.size) + " bytes")
                                  .c_str());
    return asked;
}

struct Policy {
    nb::handle cache, route, strict, stream;
};

// The number of the stream that `stream` stands for: an int (-1: none), or what torch, CuPy or
// cuda.core call a stream.
uintptr_t stream_of(nb::handle stream) {
    nb::object number = nb::borrow(stream);
    if (nb::hasattr(stream, "__cuda_stream__"))
        number = nb::steal(PySequence_GetItem(stream.attr("__cuda_stream__")().ptr(), 1));
    else if (nb::hasattr(stream, "cuda_stream"))
        number = stream.attr("cuda_stream");
    else if (nb::hasattr(stream, "ptr"))
        number = stream.attr("ptr");
    int64_t value = 0;
    if (!number.is_valid() || !nb::try_cast(number, value, /*convert=*/false))
        throw nb::type_error(
            "stream is neither an int (-1: wait for nothing) nor a stream of torch, CuPy or "
            "cuda.core");
    if (value < -1) throw nb::value_error("stream is negative, and not -1");
    return value == -1 ? ReadOptions::kNoStream : static_cast<uintptr_t>(value);
}

ReadOptions options_of(const PythonFile& file, Use use, const Policy& policy,
                       uintptr_t owner_stream) {
    ReadOptions options = use == Use::kRead ? file.options().reading : file.options().writing;
    if (!policy.cache.is_none())
        options.cache = cache_policy_of(argument<std::string>(policy.cache, "cache", "a str"));
    if (!policy.route.is_none())
        options.route = route_of(argument<std::string>(policy.route, "route", "a str"), "route");
    if (!policy.strict.is_none())
        options.strict = argument<bool>(policy.strict, "strict", "a bool");
    if (!policy.stream.is_none()) options.stream = stream_of(policy.stream);
    options.owner_stream = owner_stream;
    return options;
}

// Tells the observer that a read or write has ended.
class Observed final : public Completion {
public:
    Observed(const char* operation, const PythonFile& file, uint64_t size, uint64_t offset)
        : observer_(nb::borrow(observer())),
          token_(observer_.attr("begun")(operation, file.source()->name, size,
                                         offset == kAtEnd ? nb::none() : nb::cast(offset))) {}
    void follow(Future future) { future_ = std::move(future); }
    void complete() noexcept override { end(future_.report()); }
    void end(const Report& report) noexcept {
        try {
            observer_.attr("ended")(token_, python_report(report));
        } catch (nb::python_error& error) {
            error.discard_as_unraisable(observer_);
        }
    }

private:
    nb::object observer_, token_;
    Future future_;
};

// The parts of a vectored read or write.
struct Pieces {
    Pieces(Use given, bool is_ordered) : use(given), ordered(is_ordered) {}

    Use use;
    bool ordered;  // no stream was named
    std::vector<Target> targets;
    std::vector<ReadPiece> pieces;  // sources of a write are only read
    uint64_t size = 0;
    int cuda = Target::kHost;
    uintptr_t owner_stream = 0;

    void add(nb::handle buffer, nb::handle size_asked, uint64_t offset) {
        add(target_of(buffer, use, ordered), size_asked, offset);
    }
    void add(Target target, nb::handle size_asked, uint64_t offset) {
        const uint64_t size_here = size_within(target, size_asked);
        if (target.cuda != Target::kHost) {
            if (cuda != Target::kHost && cuda != target.cuda)
                throw nb::value_error("the buffers lie on several devices");
            cuda = target.cuda;
        }
        if (ordered && target.stream > 1) {
            if (owner_stream != 0 && owner_stream != target.stream)
                throw nb::value_error(
                    "work on the buffers is queued on several streams: name the last by stream=");
            owner_stream = target.stream;
        }
        pieces.push_back({target.data, size_here, offset});
        targets.push_back(std::move(target));
        size += size_here;
    }
    void add_tuple(const PythonFile& file, nb::handle item) {
        const auto parts = nb::steal<nb::tuple>(PySequence_Tuple(item.ptr()));
        if (!parts.is_valid()) throw nb::python_error();
        if (parts.size() < 2 || parts.size() > 3)
            throw nb::value_error(
                "a piece is (buffer, file_offset) or (buffer, file_offset, size)");
        const nb::object size_asked = parts.size() == 3 ? nb::object(parts[2]) : nb::none();
        add(parts[0], size_asked, offset_of(file, use, parts[1]));
    }
};

struct Begun {
    PythonFuture future;
    std::unique_ptr<Observed> observed;  // to be told of its end; null: nobody is
};

Result<Future> start(const File& file, const Pieces& pieces, const ReadOptions& options) {
    if (pieces.use == Use::kRead) return file.preadv(pieces.pieces, options);
    std::vector<WritePiece> sources;
    sources.reserve(pieces.pieces.size());
    for (const ReadPiece& piece : pieces.pieces)
        sources.push_back({piece.to, piece.size, piece.offset});
    return file.pwritev(sources, options);
}

Begun begin(PythonFile& self, const char* operation, Pieces& pieces, const Policy& policy) {
    refuse_at_exit();
    self.require(pieces.use);
    const ReadOptions options = options_of(self, pieces.use, policy, pieces.owner_stream);
    const File file = self.file_for(pieces.cuda);
    for (const ReadPiece& piece : pieces.pieces)
        if (piece.size > 0) self.require_memory(pieces.cuda, piece.to);
    std::unique_ptr<Observed> observed;
    const uint64_t offset = pieces.pieces.empty() ? 0 : pieces.pieces[0].offset;
    if (observer().is_valid())
        observed = std::make_unique<Observed>(operation, self, pieces.size, offset);
    self.await_appends(pieces.use, pieces.cuda);
    Result<Future> future = [&] {
        const Unlocked others;
        return start(file, pieces, options);
    }();
    if (future.ok()) self.follow_appends(pieces.use, pieces.cuda, future.value());
    if (!future.ok()) {
        if (observed != nullptr) {
            Report report;
            report.bytes_asked = pieces.size;
            if (offset != kAtEnd) report.offset = offset;
            report.error_number = future.status().error_number();
            observed->end(report);
        }
        raise_error(future.status(), self.source()->name);
    }
    if (observed != nullptr) observed->follow(future.value());
    return {{std::move(future.value()), std::move(pieces.targets), self.source()},
            std::move(observed)};
}

PythonFuture leave(Begun begun) {
    if (begun.observed != nullptr) when_done(begun.future.future(), std::move(begun.observed));
    return std::move(begun.future);
}

// Waits for what nobody else knows of.
uint64_t finish(Begun begun) {
    PythonFuture& future = begun.future;
    try {
        future.wait(std::chrono::hours(24 * 365));
    } catch (const nb::python_error&) {
        // The caller may use the buffer for something else: nothing more is to arrive there.
        future.stop();
        try {
            (void)wait_for_signals_too(future.future(), kInterruptLimit);
        } catch (const nb::python_error&) {  // a second Ctrl-C does not wait; the buffer is kept
        }
        (void)leave(std::move(begun));
        throw;
    }
    if (begun.observed != nullptr) begun.observed->complete();
    const Result<uint64_t> size = future.future().result(std::chrono::nanoseconds(0));
    if (!size.ok()) raise_error(size.status(), future.source().name, &future.future().report());
    return size.value();
}

template <Use use>
PythonFuture begin_one(PythonFile& self, nb::handle buffer, nb::handle size, nb::handle file_offset,
                       nb::handle /*task_size*/, nb::handle cache, nb::handle route,
                       nb::handle strict, nb::handle stream) {
    Pieces pieces(use, stream.is_none());
    pieces.add(buffer, size, optional_offset_of(self, use, file_offset));
    return leave(begin(self, use == Use::kRead ? "pread" : "pwrite", pieces,
                       {cache, route, strict, stream}));
}

template <Use use>
uint64_t do_one(PythonFile& self, nb::handle buffer, nb::handle size, nb::handle file_offset,
                nb::handle /*task_size*/, nb::handle cache, nb::handle route, nb::handle strict,
                nb::handle stream) {
    constexpr const char* kOperation = use == Use::kRead ? "read" : "write";
    const uint64_t offset = optional_offset_of(self, use, file_offset);
    const Policy policy{cache, route, strict, stream};
    Target target = target_of(buffer, use, stream.is_none());
    const uint64_t asked = size_within(target, size);
    if (asked > kUninterruptedSize) {
        Pieces pieces(use, stream.is_none());
        pieces.add(std::move(target), size, offset);
        return finish(begin(self, kOperation, pieces, policy));
    }
    refuse_at_exit();
    self.require(use);
    const File file = self.file_for(target.cuda);
    if (asked > 0) self.require_memory(target.cuda, target.data);
    const ReadOptions options = options_of(self, use, policy, target.stream);
    std::unique_ptr<Observed> observed;
    if (observer().is_valid())
        observed = std::make_unique<Observed>(kOperation, self, asked, offset);
    self.await_appends(use, target.cuda);
    Report report;
    const Result<uint64_t> done = [&] {
        const Unlocked others;
        return use == Use::kRead ? file.read(target.data, asked, offset, options, &report)
                                 : file.write(target.data, asked, offset, options, &report);
    }();
    if (observed != nullptr) {
        report.bytes_asked = asked;
        if (offset != kAtEnd) report.offset = offset;
        if (!done.ok()) report.error_number = done.status().error_number();
        observed->end(report);
    }
    if (!done.ok()) raise_error(done.status(), self.source()->name, &report);
    return done.value();
}

template <Use use>
PythonFuture begin_many(PythonFile& self, nb::handle buffers, nb::handle cache, nb::handle route,
                        nb::handle strict, nb::handle stream) {
    Pieces pieces(use, stream.is_none());
    for (const nb::handle item : nb::iter(buffers)) pieces.add_tuple(self, item);
    return leave(begin(self, use == Use::kRead ? "preadv" : "pwritev", pieces,
                       {cache, route, strict, stream}));
}

template <Use use>
uint64_t do_many(PythonFile& self, nb::handle buffers, nb::handle cache, nb::handle route,
                 nb::handle strict, nb::handle stream) {
    Pieces pieces(use, stream.is_none());
    for (const nb::handle item : nb::iter(buffers)) pieces.add_tuple(self, item);
    return finish(begin(self, use == Use::kRead ? "readv" : "writev", pieces,
                        {cache, route, strict, stream}));
}

void prefetch(PythonFile& self, nb::handle offset, nb::handle size) {
    const uint64_t first = natural(offset, "file_offset");
    const uint64_t asked = size.is_none() ? UINT64_MAX : natural(size, "size");
    self.require(Use::kRead);
    const File file = self.file_for(Target::kHost);
    const Status status = [&] {
        const Unlocked others;
        return file.prefetch(first, asked);
    }();
    if (!status.ok()) raise_error(status, self.source()->name);
}

// Not interrupted by signals: the kernel does not let it be.
void fsync(PythonFile& self, bool data_only) {
    const File file = self.file_for(Target::kHost);
    const Status status = [&] {
        const Unlocked others;
        return file.fsync(data_only);
    }();
    if (!status.ok()) raise_error(status, self.source()->name);
}

void truncate(PythonFile& self, nb::handle size) {
    const uint64_t asked = natural(size, "size");
    self.require(Use::kWrite);
    const File file = self.file_for(Target::kHost);
    const Status status = [&] {
        const Unlocked others;
        return file.truncate(asked);
    }();
    if (!status.ok()) raise_error(status, self.source()->name);
}

uint64_t file_size(PythonFile& self) {
    const File file = self.file_for(Target::kHost);
    const Result<uint64_t> size = [&] {
        const Unlocked others;  // a file system of the network may take long to answer
        return file.size();
    }();
    if (!size.ok()) raise_error(size.status(), self.source()->name);
    return size.value();
}

constexpr const char* kArgumentsText =
    "size : int, optional\n    Bytes; all of `buf`.\n"
    "file_offset : int\n    Where in the file, from its start. Writes in mode a take none.\n"
    "task_size : int, optional\n    Ignored: for programs written for KvikIO.\n"
    "cache, route, strict : optional\n    As in penstock.open, for this call.\n"
    "stream : optional\n    Of device memory: the call begins when what is queued now on this "
    "stream is over (an\n"
    "    int, or a stream of torch, CuPy or cuda.core); -1: at once. None: on the legacy default\n"
    "    stream, and on the current stream of who owns the buffer.\n";

constexpr const char* kReadText =
    "\n\nParameters\n----------\n"
    "buf : buffer\n    Writable, contiguous host or device memory: DeviceMemory, the buffer\n"
    "    protocol, DLPack or __cuda_array_interface__. No kernel that is queued later may use\n"
    "    it before the call is over.\n";

constexpr const char* kWriteText =
    "\n\nBeyond its end the file grows, with zeros between. By default the bytes are then in the "
    "OS\n"
    "page cache, seen by every reader; `fsync` makes them last.\n\n"
    "Parameters\n----------\n"
    "buf : buffer\n    Contiguous host or device memory: DeviceMemory, the buffer protocol, "
    "DLPack\n"
    "    or __cuda_array_interface__. Nothing that is queued later may write to it\n"
    "    before the call is over.\n";

constexpr const char* kSignalsText =
    "\nNotes\n-----\n"
    "Of a call for at most 1 MiB a signal's handler (Ctrl-C) runs when it is over: as\n"
    "os.preadv on a disk, it does not end before storage answers. A longer one, and readv\n"
    "and writev, let the handler run; where that raises, they end when what of them has begun\n"
    "is over, or 5 seconds later. Where storage may stand still, wait for a Future: a signal\n"
    "ends its result() at once, and the read or write goes on.\n";

template <Use use>
void bind_moves(nb::class_<PythonFile>& file, const char* const (&names)[4],
                const std::string (&texts)[4]) {
    const auto none = [](const char* name) { return nb::arg(name).none() = nb::none(); };
    const auto offset = nb::arg("file_offset").none() = use == Use::kRead ? nb::cast(0)
                                                                          : nb::none();
    file.def(names[0], begin_one<use>, nb::arg("buf").none(), none("size"), offset,
             none("task_size"), nb::kw_only(), none("cache"), none("route"), none("strict"),
             none("stream"), texts[0].c_str())
        .def(names[1], do_one<use>, nb::arg("buf").none(), none("size"), offset, none("task_size"),
             nb::kw_only(), none("cache"), none("route"), none("strict"), none("stream"),
             texts[1].c_str())
        .def(names[2], begin_many<use>, nb::arg("pieces"), nb::kw_only(), none("cache"),
             none("route"), none("strict"), none("stream"), texts[2].c_str())
        .def(names[3], do_many<use>, nb::arg("pieces"), nb::kw_only(), none("cache"), none("route"),
             none("strict"), none("stream"), texts[3].c_str());
}

void bind_all_moves(nb::class_<PythonFile>& file) {
    const std::string read_arguments = std::string(kReadText) + kArgumentsText;
    const std::string write_arguments = std::string(kWriteText) + kArgumentsText;
    bind_moves<Use::kRead>(
        file, {"pread", "read", "preadv", "readv"},
        {"Begin to read into `buf`; a Future of the bytes that arrive." + read_arguments,
         "Read into `buf`; bytes that arrived, fewer only at the end of the file. `buf` stays as "
         "it "
         "is behind them." +
             read_arguments + kSignalsText,
         "Begin to read (buf, file_offset[, size]) pieces; one Future of the sum of bytes.",
         "Read (buf, file_offset[, size]) pieces; the sum of bytes."});
    bind_moves<Use::kWrite>(
        file, {"pwrite", "write", "pwritev", "writev"},
        {"Begin to write what is in `buf`; a Future of the bytes." + write_arguments,
         "Write what is in `buf`; its bytes." + write_arguments + kSignalsText,
         "Begin to write (buf, file_offset[, size]) pieces; one Future of the sum of bytes.",
         "Write (buf, file_offset[, size]) pieces; the sum of bytes."});
    file.def("fsync", fsync, nb::arg("data_only") = false,
             "Return when what was written, by whomever, outlasts the machine's power.\n\n"
             "Calls under way, futures that are not done among them, may or may not be covered.\n"
             "data_only: as fdatasync. An Error may mean that bytes are lost; it is raised once.")
        .def(
            "prefetch", prefetch, nb::arg("file_offset") = 0, nb::arg("size") = nb::none(),
            "Tell the OS that these bytes will be read soon; it reads them into its page cache.\n\n"
            "Without a size up to the end of the file. Does not wait for the bytes.")
        .def("truncate", truncate, nb::arg("size"),
             "Cut the file off at `size` bytes, or make it longer with zeros.");
}

nb::object told(const std::optional<Route>& route) {
    return route.has_value() ? nb::cast(name(*route)) : nb::none();
}

}  // namespace

void bind_file(nb::module_& module) {
    const auto none = [](const char* name) { return nb::arg(name).none() = nb::none(); };
    nb::class_<PythonFile> file(module, "File", nb::is_weak_referenceable(),
                                "An open file; penstock.open makes it. Any thread.");
    file.def(
        "__init__",
        [](PythonFile* self, nb::object file_, const std::string& mode, nb::object device,
           const std::string& cache, nb::object route, nb::object strict, nb::object threads,
           const std::string& storage, double latency_us, double bandwidth_mbs) {
            new (self) PythonFile(std::move(file_), mode,
                                  {std::move(device), cache, std::move(route), std::move(strict),
                                   std::move(threads), storage, latency_us, bandwidth_mbs});
        },
        nb::arg("file"), nb::arg("mode") = "r", none("device"), nb::arg("cache") = "auto",
        none("route"), none("strict"), none("threads"), nb::kw_only(), nb::arg("storage") = "auto",
        nb::arg("throttle_latency_us") = 0.0, nb::arg("throttle_bandwidth_mbs") = 0.0,
        "As penstock.open.");
    bind_all_moves(file);
    file.def("close", &PythonFile::close,
             "Close it; reads and writes under way go on. Syncs nothing.")
        .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
        .def("__exit__", [](PythonFile& self, const nb::args&) { self.close(); })
        .def("__repr__",
             [](PythonFile& self) {
                 return "<penstock.File " + std::string(nb::repr(self.source()->name).c_str()) +
                        (self.closed() ? ", closed>" : ">");
             })
        .def_prop_ro("closed", &PythonFile::closed)
        .def_prop_ro("name", [](PythonFile& self) { return self.source()->name; })
        .def_prop_ro("mode", [](PythonFile& self) { return self.mode(); })
        .def_prop_ro("size", file_size, "Bytes, now.")
        .def_prop_ro("device", [](PythonFile& self) { return self.device_name(); })
        .def_prop_ro("cache", [](PythonFile& self) { return word(self.options().reading.cache); })
        .def_prop_ro("route", [](PythonFile& self) { return told(self.options().reading.route); })
        .def_prop_ro("strict", [](PythonFile& self) { return self.options().reading.strict; });
}

}  // namespace penstock::python
