// Descriptors of what lies below a mount, and what tells one object there from another. Any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace penstock::cache_service {

// A descriptor of an object below. It stays open while a copy of this lives: a request keeps one.
class Below {
public:
    Below() = default;  // stands for no descriptor
    // `descriptor` points into what its owner keeps.
    explicit Below(std::shared_ptr<const int> descriptor) : descriptor_(std::move(descriptor)) {}
    // Takes over a descriptor, which is closed with the last copy; of -1 it makes none.
    static Below take(int descriptor);
    // Opens the object `name` of a folder with O_PATH, a link itself. Returns none with errno set.
    static Below open(const Below& folder, const char* name);

    explicit operator bool() const { return descriptor_ != nullptr; }
    [[nodiscard]] int get() const { return descriptor_ == nullptr ? -1 : *descriptor_; }
    // Returns a name under which the object itself is opened.
    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(get()); }

private:
    std::shared_ptr<const int> descriptor_;
};

// What an object is, whatever its name. A file system gives the number of a removed file to a new
// one, which then has another time of birth.
struct Identity {
    dev_t device = 0;
    ino_t number = 0;
    mode_t type = 0;     // S_IFMT bits
    int64_t born_s = 0;  // 0: the file system does not tell, or not always the same
    uint32_t born_ns = 0;

    // Returns whether both are one object, as far as the file system tells.
    [[nodiscard]] bool is(const Identity& other) const;
};

// Returns the number that an object has in a mount, whose objects all seem to be on one device.
// Programs take two names with one number for one file. So an object on another device than `root`
// gets a number that no object there has, nor, unless 15 bits of devices agree, one elsewhere.
ino_t shown_number(dev_t root, dev_t device, ino_t number);

// Describes an object. Returns false with errno set.
bool describe(const Below& below, struct stat* attributes, Identity* identity);

}  // namespace penstock::cache_service
