// The public view of the stored calibrations: which there are, which one is used, and their
// removal.
#include <utility>

#include "file/calibration.h"
#include "file/system.h"
#include "penstock/calibrate.h"

namespace penstock {
namespace {

StoredCalibration describe(const file::CalibrationEntry& entry) {
    const planner::CostModel model = entry.model_with_error();
    StoredCalibration out;
    out.memory = entry.key.memory;
    out.file_system = entry.key.file_system;
    out.storage = entry.key.storage;
    out.measured_at = entry.measured_at;
    out.threads = static_cast<unsigned>(entry.threads);
    out.depth = static_cast<unsigned>(entry.depth);
    out.direct = {entry.direct, model.direct_ns, model.direct_ns_per_byte, entry.direct_error};
    out.cached = {entry.cached, model.cached_ns, model.cached_ns_per_byte, entry.cached_error};
    out.buffered = {entry.buffered, model.buffered_ns, model.buffered_ns_per_byte,
                    entry.buffered_error};
    out.error = model.error;
    return out;
}

}  // namespace

StoredCalibrations stored_calibrations() {
    StoredCalibrations out;
    out.path = file::calibration_path();
    file::Calibrations known = file::load_calibrations(out.path);
    for (const file::CalibrationEntry& entry : known.entries) out.all.push_back(describe(entry));
    out.complaint = std::move(known.complaint);
    return out;
}

Result<CalibrationInUse> calibration_in_use(const std::string& path, const Device& device,
                                            StorageKind kind) {
    auto storage = file::open_storage(kind, {});
    if (!storage.ok()) return storage.status();
    const auto key = file::calibration_key(device.port().get(), *storage.value(), path);
    if (!key.ok()) return key.status();
    CalibrationInUse out{key.value().memory, key.value().file_system, key.value().storage, {}, {}};
    file::Calibrations known = file::load_calibrations(file::calibration_path());
    for (const file::CalibrationEntry& entry : known.entries)
        if (entry.key == key.value()) out.stored = describe(entry);
    out.complaint = std::move(known.complaint);
    return out;
}

Result<uint64_t> reset_calibrations(const std::string& path) {
    std::string file_system;
    if (!path.empty()) {
        auto storage = file::open_storage(StorageKind::kPosix, {});
        if (!storage.ok()) return storage.status();
        const auto key = file::calibration_key(nullptr, *storage.value(), path);
        if (!key.ok()) return key.status();
        file_system = key.value().file_system;
    }
    const auto removed = file::remove_calibrations(
        file::calibration_path(), [&](const file::CalibrationKey& key) {
            return path.empty() || key.file_system == file_system;
        });
    if (!removed.ok()) return removed.status();
    return uint64_t{removed.value()};
}

}  // namespace penstock
