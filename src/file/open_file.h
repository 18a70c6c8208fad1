// Implements File: one open file, and the engine that its reads and writes share with other files.
// Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "file/append_order.h"
#include "file/file_service.h"
#include "penstock/file.h"
#include "storage/storage.h"
#include "transfer/job.h"
#include "transfer/source.h"

namespace penstock::file {

class OpenFile : public std::enable_shared_from_this<OpenFile> {
public:
    // Opens the file with the engine of this device and these options. Makes the engine if there is
    // none.
    static Result<std::shared_ptr<OpenFile>> open(const std::string& path, const Device& device,
                                                  const FileOptions& options);
    // Takes over a descriptor, as File::adopt().
    static Result<std::shared_ptr<OpenFile>> adopt(int descriptor, const Device& device,
                                                   const FileOptions& options);
    // Opens the file with the caller's own storage. No other file shares the engine that this call
    // makes.
    static Result<std::shared_ptr<OpenFile>> open(const std::string& path, const Device& device,
                                                  const FileOptions& options,
                                                  std::shared_ptr<storage::Storage> storage);

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const FileOptions& options() const { return options_; }
    [[nodiscard]] Result<uint64_t> size() const;
    [[nodiscard]] Result<ResidencyReport> residency(const ResidencyOptions& options);

    Result<uint64_t> read(void* to, uint64_t size, uint64_t offset, const ReadOptions& options,
                          Report* report);
    Result<uint64_t> readv(std::span<const ReadPiece> pieces, const ReadOptions& options,
                           Report* report);
    Result<std::shared_ptr<transfer::Job>> start(std::span<const ReadPiece> pieces,
                                                 const ReadOptions& options);
    Result<uint64_t> write(const void* from, uint64_t size, uint64_t offset,
                           const WriteOptions& options, Report* report);
    Result<uint64_t> writev(std::span<const WritePiece> pieces, const WriteOptions& options,
                            Report* report);
    Result<std::shared_ptr<transfer::Job>> start(std::span<const WritePiece> pieces,
                                                 const WriteOptions& options);
    Status prefetch(uint64_t offset, uint64_t size);
    Status fsync(bool data_only);
    Status truncate(uint64_t size);

private:
    static Result<std::shared_ptr<OpenFile>> share(const std::string& path, const Device& device,
                                                   const FileOptions& options,
                                                   std::shared_ptr<FileService> service,
                                                   const std::shared_ptr<storage::File>& file);
    OpenFile(std::string path, const Device& device, const FileOptions& options,
             std::shared_ptr<FileService> service, const std::shared_ptr<storage::File>& file);
    using Pieces = std::vector<transfer::Piece>;
    [[nodiscard]] Status check(std::span<const transfer::Piece> pieces, bool write) const;
    [[nodiscard]] Status place_at_end(Pieces* pieces) const;
    // Returns whether `address` is in memory that the host cannot address.
    [[nodiscard]] bool is_device_memory(const void* address) const;
    // Stores the work that a transfer of device memory must wait for, or null if there is none.
    Status find_queued_work(const ReadOptions& options,
                            std::shared_ptr<backend::QueuedWork>* out) const;
    Result<uint64_t> move(const transfer::Piece& piece, bool write, const ReadOptions& options,
                          Report* report);
    // Explains an operation when its `move` has ended, which fills the report.
    template <class Move>
    Result<uint64_t> explained(const char* operation, Report* report, const Move& move);
    Result<uint64_t> move_all(Pieces pieces, bool write, const ReadOptions& options,
                              Report* report);
    Result<std::shared_ptr<transfer::Job>> make_job(Pieces pieces, bool write,
                                                    const ReadOptions& options, bool with_caller);
    Result<std::shared_ptr<transfer::Job>> start_job(Pieces pieces, bool write,
                                                     const ReadOptions& options);
    Result<std::shared_ptr<transfer::Job>> begin_job(Pieces pieces, bool write,
                                                     const ReadOptions& options);

    const std::string path_;
    const Device device_;
    const FileOptions options_;
    const bool explains_;  // options_.explain
    const std::shared_ptr<FileService> service_;
    const std::shared_ptr<transfer::Source> source_;
    const uint64_t process_;                           // process_number() at the open
    const uint64_t number_;                            // of this open file, for read_ahead_of()
    const std::shared_ptr<AppendOrder> append_order_;  // null: writes have offsets
    const bool host_memory_;  // the host can address all of the device's memory
};

}  // namespace penstock::file
