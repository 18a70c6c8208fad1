#include "file/calibration.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "access/json_reader.h"
#include "file/environment.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

namespace system = storage::system;
using system::ScopedDescriptor;

constexpr const char* kOrigin = "calibration";
constexpr std::string_view kFormat = "penstock calibration";
constexpr uint64_t kVersion = 2, kVersionMin = 1;
constexpr size_t kStringBytesMax = 256;
constexpr double kErrorMax = 1e6;  // a forced calibration may be that bad

std::atomic<uint64_t> stores{0};

// Replaces the characters that a key may not have, so that a key is the same wherever it is
// written.
std::string plain(std::string text) {
    for (char& one : text) {
        if (one < ' ' || one > '~' || one == '"' || one == '\\') one = '?';
    }
    if (text.size() > kStringBytesMax) text.resize(kStringBytesMax);
    return text;
}

std::string hexadecimal(uint64_t number) {
    char text[17];
    std::snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(number));
    return text;
}

std::string kind_of_file_system(uint64_t magic) {
    static constexpr std::pair<uint64_t, const char*> kKnown[] = {
        {0xef53, "ext4"},       {0x58465342, "xfs"},     {0x9123683e, "btrfs"},
        {0x01021994, "tmpfs"},  {0x794c7630, "overlay"}, {0x6969, "nfs"},
        {0x65735546, "fuse"},   {0xf2f52010, "f2fs"},    {0x2fc12fc1, "zfs"},
        {0x0bd00bd0, "lustre"}, {0x00c36400, "ceph"},    {0x01021997, "9p"},
        {0xff534d42, "cifs"},
    };
    for (const auto& [known, name] : kKnown) {
        if (known == magic) return name;
    }
    return "0x" + hexadecimal(magic);
}

void put(std::string* out, const char* name, double value) {
    char text[32];
    const auto [end, error] = std::to_chars(text, text + sizeof text, value);
    *out += std::string("\"") + name + "\": " + std::string(text, end);
}

void put(std::string* out, const char* name, uint64_t value) {
    *out += std::string("\"") + name + "\": " + std::to_string(value);
}

void put(std::string* out, const char* name, const std::string& value) {
    *out += std::string("\"") + name + "\": \"" + value + "\"";
}

void put_line(std::string* out, const char* name, double ns, double ns_per_byte,
              std::optional<double> error) {
    *out += std::string(",\n     \"") + name + "\": {";
    put(out, "ns", ns);
    *out += ", ";
    put(out, "ns_per_byte", ns_per_byte);
    if (!error.has_value()) return;
    *out += ", ";
    put(out, "error", *error);
}

void put(std::string* out, const CalibrationEntry& entry) {
    const planner::CostModel& model = entry.model;
    *out += "    {";
    put(out, "memory", entry.key.memory);
    *out += ", ";
    put(out, "file_system", entry.key.file_system);
    *out += ", ";
    put(out, "storage", entry.key.storage);
    *out += ",\n     ";
    put(out, "measured_at", entry.measured_at);
    *out += ", ";
    put(out, "threads", entry.threads);
    *out += ", ";
    put(out, "depth", entry.depth);
    if (entry.direct) {
        put_line(out, "direct", model.direct_ns, model.direct_ns_per_byte, entry.direct_error);
        *out += ", ";
        put(out, "cutoff_size", model.cutoff_size);
        *out += ", ";
        put(out, "start_ns", model.direct_start_ns);
        *out += ", ";
        put(out, "submit_ns", model.direct_submit_ns);
        *out += "}";
    }
    if (entry.cached) {
        put_line(out, "cached", model.cached_ns, model.cached_ns_per_byte, entry.cached_error);
        *out += "}";
    }
    if (entry.buffered) {
        put_line(out, "buffered", model.buffered_ns, model.buffered_ns_per_byte,
                 entry.buffered_error);
        *out += "}";
    }
    *out += "}";
}

using access::JsonReader;

bool all_there(JsonReader* reader, uint32_t seen, uint32_t wanted) {
    return reader->ok() && ((seen & wanted) == wanted || reader->fail("a key is missing"));
}

bool read_error(JsonReader* reader, std::optional<double>* error) {
    double number = 0;
    if (!reader->number(&number)) return false;
    *error = number;
    return (number >= 0 && number <= kErrorMax) || reader->fail("an error that no fit has");
}

// `number`: of the device that the file behind the descriptor is on.
CalibrationKey key_of(const backend::Device* device, const storage::Storage& storage,
                      int descriptor, uint64_t number) {
    CalibrationKey key;
    const bool here = device == nullptr || device->properties().host_addressable;
    key.memory = here ? "host" : plain(device->properties().name);
    key.storage = plain(storage.kind() == storage::Kind::kThrottle ? storage.description()
                                                                   : name(storage.kind()));
    struct statfs told {};
    if (descriptor < 0 || system::fstatfs(descriptor, &told) != 0) return key;
    uint64_t told_number = static_cast<uint32_t>(told.f_fsid.__val[0]);
    told_number = told_number << 32 | static_cast<uint32_t>(told.f_fsid.__val[1]);
    // Some file systems report no number. The device number may change after a restart, but without
    // it two file systems could get the same key.
    key.file_system = kind_of_file_system(static_cast<uint32_t>(told.f_type)) + " " +
                      hexadecimal(told_number == 0 ? number : told_number);
    return key;
}

// Parses {"ns": ..., "ns_per_byte": ..., "error": ...}, perhaps without the last.
bool read_line(JsonReader* reader, double* ns, double* ns_per_byte, std::optional<double>* error) {
    bool first = true;
    uint32_t seen = 0;
    size_t index = 0;
    if (!reader->open('{')) return false;
    while (reader->member(&first, {"ns", "ns_per_byte", "error"}, &seen, &index))
        (void)(index == 2 ? read_error(reader, error)
                          : reader->number(index == 0 ? ns : ns_per_byte));
    return all_there(reader, seen, 0x3);
}

bool read_direct(JsonReader* reader, planner::CostModel* model, std::optional<double>* error) {
    bool first = true;
    uint32_t seen = 0;
    size_t index = 0;
    if (!reader->open('{')) return false;
    while (reader->member(&first,
                          {"ns", "ns_per_byte", "cutoff_size", "start_ns", "submit_ns", "error"},
                          &seen, &index)) {
        double* const numbers[] = {&model->direct_ns, &model->direct_ns_per_byte, nullptr,
                                   &model->direct_start_ns, &model->direct_submit_ns};
        (void)(index == 5   ? read_error(reader, error)
               : index == 2 ? reader->natural(&model->cutoff_size)
                            : reader->number(numbers[index]));
    }
    return all_there(reader, seen, 0x1f);
}

bool read_entry(JsonReader* reader, CalibrationEntry* entry) {
    bool first = true;
    uint32_t seen = 0;
    size_t index = 0;
    if (!reader->open('{')) return false;
    planner::CostModel& model = entry->model;
    while (reader->member(&first,
                          {"memory", "file_system", "storage", "measured_at", "threads", "depth",
                           "direct", "cached", "buffered"},
                          &seen, &index)) {
        std::string* const texts[] = {&entry->key.memory, &entry->key.file_system,
                                      &entry->key.storage};
        uint64_t* const numbers[] = {&entry->measured_at, &entry->threads, &entry->depth};
        if (index < 3) {
            (void)reader->string(texts[index]);
        } else if (index < 6) {
            (void)reader->natural(numbers[index - 3]);
        } else if (index == 6) {
            entry->direct = read_direct(reader, &model, &entry->direct_error);
        } else if (index == 7) {
            entry->cached = read_line(reader, &model.cached_ns, &model.cached_ns_per_byte,
                                      &entry->cached_error);
        } else {
            entry->buffered = read_line(reader, &model.buffered_ns, &model.buffered_ns_per_byte,
                                        &entry->buffered_error);
        }
    }
    if (!all_there(reader, seen, 0x3f)) return false;
    if (entry->key.memory != plain(entry->key.memory) ||
        entry->key.file_system != plain(entry->key.file_system) ||
        entry->key.storage != plain(entry->key.storage)) {
        return reader->fail("a name that is not plain text");
    }
    return sane(model) == model || reader->fail("figures that no machine has");
}

// Parses the entries, which follow the format and the version.
bool read_entries(JsonReader* reader, std::vector<CalibrationEntry>* entries) {
    bool first = true;
    if (!reader->open('[')) return false;
    while (reader->element(&first)) {
        CalibrationEntry& entry = entries->emplace_back();
        if (!read_entry(reader, &entry)) return false;
        const auto same = std::find_if(
            entries->begin(), entries->end(),
            [&entry](const CalibrationEntry& other) { return other.key == entry.key; });
        if (&*same != &entry) return reader->fail("two entries for the same");
        if (entries->size() > kCalibrationsMax) return reader->fail("too many entries");
    }
    return reader->ok();
}

Status write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = system::write(descriptor, text.data(), text.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return {errno, kOrigin, "the file cannot be written"};
        text.remove_prefix(static_cast<size_t>(count));
    }
    return {};
}

// Makes the folder and its parents. Only this user may access them, as the XDG base directory
// specification demands.
Status make_folder(const std::string& path) {
    for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
        const std::string part = path.substr(0, at);
        if (system::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
            struct stat found {};
            const int error = errno;
            if (system::stat(part.c_str(), &found) != 0)
                return {error, kOrigin, "no folder to keep it in"};
        }
        if (at == std::string::npos) return {};
    }
}

Status replace_file(const std::string& path, std::string_view text) {
    std::string name = path + ".XXXXXX";
    Status status;
    {
        const ScopedDescriptor file(system::make_unique_file(&name));
        if (file.get() < 0) return {errno, kOrigin, "no file can be made there"};
        status = write_all(file.get(), text);
        if (status.ok() && system::fsync(file.get()) != 0)
            status = {errno, kOrigin, "the file cannot be written"};
    }
    if (status.ok() && system::rename(name.c_str(), path.c_str()) != 0)
        status = {errno, kOrigin, "the file cannot be put in its place"};
    if (!status.ok()) system::unlink(name.c_str());
    return status;
}

// Lets `change` edit what the file holds, and writes it if it returns true.
template <class Change>
Status change_file(const std::string& path, const Change& change) {
    if (path.empty()) return {ENOENT, kOrigin, "neither XDG_CONFIG_HOME nor HOME names a folder"};
    const std::string folder = path.substr(0, path.rfind('/'));
    if (Status status = make_folder(folder); !status.ok()) return status;
    const ScopedDescriptor held(system::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (held.get() < 0) return {errno, kOrigin, "no folder to keep it in"};
    // On a file system without locks, the last process to store wins.
    while (system::flock(held.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
    Calibrations known = load_calibrations(path);
    if (!change(&known)) return {};
    if (Status status = replace_file(path, write_calibrations(known.entries)); !status.ok())
        return status;
    (void)system::fsync(held.get());  // after a crash the old file may be back, which does no harm
    stores.fetch_add(1, std::memory_order_release);
    return {};
}

}  // namespace

planner::CostModel CalibrationEntry::model_with_error() const {
    planner::CostModel out = model;
    const std::pair<bool, std::optional<double>> errors[] = {
        {direct, direct_error}, {cached, cached_error}, {buffered, buffered_error}};
    for (const auto& [measured, error] : errors) {
        if (measured) out.error = std::max(out.error, error.value_or(planner::kModelErrorUnknown));
    }
    return sane(out);
}

CalibrationKey calibration_key(const backend::Device* device, const storage::Storage& storage,
                               const storage::File& file) {
    return key_of(device, storage, file.descriptor(), file.identity().device);
}

Result<CalibrationKey> calibration_key(const backend::Device* device,
                                       const storage::Storage& storage, const std::string& path) {
    const ScopedDescriptor file(system::open(path.c_str(), O_PATH | O_CLOEXEC));
    storage::Identity identity;
    if (file.get() < 0) return Status{errno, "open", "the path cannot be opened"};
    if (Status status = storage::identify(file.get(), &identity); !status.ok()) return status;
    return key_of(device, storage, file.get(), identity.device);
}

std::string write_calibrations(const std::vector<CalibrationEntry>& entries) {
    std::string out = "{\"format\": \"" + std::string(kFormat) +
                      "\", \"version\": " + std::to_string(kVersion) + ", \"entries\": [\n";
    for (size_t i = 0; i < entries.size(); ++i) {
        put(&out, entries[i]);
        out += i + 1 < entries.size() ? ",\n" : "\n";
    }
    return out + "]}\n";
}

Result<std::vector<CalibrationEntry>> parse_calibrations(std::string_view text, size_t* error_at) {
    JsonReader reader(text, kStringBytesMax);
    std::vector<CalibrationEntry> entries;
    bool first = true;
    uint32_t seen = 0;
    size_t index = 0;
    std::string format;
    uint64_t version = 0;
    // The format and the version come first, so that a file of another version gives ENOTSUP and no
    // other error.
    bool good = reader.open('{') && reader.member(&first, {"format"}, &seen, &index) &&
                reader.string(&format);
    if (good && format != kFormat) good = reader.fail("not a calibration");
    seen = 0;
    good = good && reader.member(&first, {"version"}, &seen, &index) && reader.natural(&version);
    if (good && (version < kVersionMin || version > kVersion)) {
        *error_at = reader.at();
        return Status{ENOTSUP, kOrigin, "of another version of penstock"};
    }
    seen = 0;
    good = good && reader.member(&first, {"entries"}, &seen, &index) &&
           read_entries(&reader, &entries) && reader.close() && reader.end();
    *error_at = reader.at();
    if (good) return entries;
    return Status{EINVAL, kOrigin, reader.ok() ? "a key is missing" : reader.status().text()};
}

std::string calibration_path() {
    const std::string config(environment("XDG_CONFIG_HOME"));
    if (config.starts_with('/')) return config + "/penstock/calibration.json";
    const std::string home(environment("HOME"));
    return home.starts_with('/') ? home + "/.config/penstock/calibration.json" : "";
}

Calibrations load_calibrations(const std::string& path) {
    Calibrations loaded;
    if (path.empty()) return loaded;
    const auto complain = [&](const std::string& why) {
        loaded.entries.clear();
        loaded.complaint = path + ": " + why +
                           "; defaults are used until penstock calibrate writes it anew";
        return loaded;
    };
    const ScopedDescriptor file(system::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) {
        const bool none = errno == ENOENT || errno == ENOTDIR;
        return none ? loaded : complain(std::strerror(errno));
    }
    std::string text;
    for (;;) {
        char piece[4096];
        const ssize_t count = system::read(file.get(), piece, sizeof piece);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return complain(std::strerror(errno));
        if (count == 0) break;
        text.append(piece, static_cast<size_t>(count));
        if (text.size() > kCalibrationBytesMax) return complain("too long");
    }
    size_t at = 0;
    auto entries = parse_calibrations(text, &at);
    if (!entries.ok())
        return complain("byte " + std::to_string(at) + ": " + entries.status().text());
    loaded.entries = std::move(entries.value());
    return loaded;
}

Status store_calibration(const std::string& path, const CalibrationEntry& entry) {
    return change_file(path, [&entry](Calibrations* known) {
        std::vector<CalibrationEntry>& entries = known->entries;
        std::erase_if(entries, [&](const CalibrationEntry& old) { return old.key == entry.key; });
        if (entries.size() >= kCalibrationsMax) {
            const auto is_older = [](const CalibrationEntry& a, const CalibrationEntry& b) {
                return a.measured_at < b.measured_at;
            };
            entries.erase(std::min_element(entries.begin(), entries.end(), is_older));
        }
        entries.push_back(entry);
        return true;
    });
}

Result<size_t> remove_calibrations(const std::string& path,
                                   const std::function<bool(const CalibrationKey&)>& goes) {
    size_t count = 0;
    struct stat found {};
    const bool none = !path.empty() && system::stat(path.c_str(), &found) != 0 &&
                      (errno == ENOENT || errno == ENOTDIR);
    if (none) return count;
    const Status status = change_file(path, [&](Calibrations* known) {
        count = std::erase_if(known->entries,
                              [&](const CalibrationEntry& entry) { return goes(entry.key); });
        return count > 0 || !known->complaint.empty();
    });
    if (!status.ok()) return status;
    return count;
}

uint64_t calibrations_stored() { return stores.load(std::memory_order_acquire); }

}  // namespace penstock::file
