// Devices that Python has opened, and memory of theirs that it holds.
//
// Wants the interpreter held, which is also what guards the table of devices.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <string>

#include "penstock/device.h"

namespace penstock::python {

// The device that `name` stands for to host reads, opened once for each process. Throws
// penstock.Error.
const Device& open_device(const std::string& name);
// N of "cuda:N ..."; -1: no CUDA device.
int cuda_index(const Device& device);

// Memory of a device, given back with the last that holds it: handles, views, reads under way.
class Block {
public:
    Block(Device device, void* data, size_t size);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    [[nodiscard]] const Device& device() const { return device_; }
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
    [[nodiscard]] size_t size() const { return size_; }
    // This is the child of a fork, and the device's threads are not here.
    [[nodiscard]] bool is_of_parent() const;

private:
    Device device_;
    void* data_;
    size_t size_;
    unsigned process_;
};

// A part of a block: what Python holds as penstock.DeviceMemory.
struct DeviceMemory {
    std::shared_ptr<Block> block;  // null: it was freed
    size_t offset = 0, size = 0;   // within the block

    [[nodiscard]] std::byte* data() const { return block->data() + offset; }
};

}  // namespace penstock::python
