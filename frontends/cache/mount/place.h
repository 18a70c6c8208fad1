// Where a mount goes: the folder that it shows, what lies over it already, and what the kernel
// tells of mounts.
#pragma once

#include <string>

namespace penstock::cache_service {

// Opens the folder to show, with O_PATH, and takes it for this process: no other cache shows it
// until `lock` is closed. Returns -1 with a line in `error`. There must be no link in the path, as
// in that of a mountpoint.
int open_shown_folder(const std::string& path, int* lock, std::string* error);
// Removes what a killed process left at `mountpoint`, and checks that a mount may go there: a
// folder, over which no other mount of this kind lies, and not inside `path`. Returns a descriptor
// of it, of O_PATH, or -1 with a line in `error`. `root` is that of `path`.
int open_mountpoint(int root, const std::string& path, const std::string& mountpoint,
                    std::string* error);
// Returns the path that the kernel tells for a descriptor.
std::string path_behind(int descriptor);
// Returns a path without links, dots and slashes at the end, of which the last name may be a mount
// that does not answer.
std::string absolute(const std::string& path);
// Returns the device of the topmost mount at a path, such as "0:52"; empty: there is none.
std::string device_mounted_at(const std::string& mountpoint);
// Takes a mount away from its place. Programs that have files of it open keep them. Returns false
// if it cannot.
bool unmount_lazily(const std::string& mountpoint);
// Lets the kernel read ahead as many bytes as one request takes, if this user may decide that.
void set_readahead(const std::string& mountpoint, unsigned size);

}  // namespace penstock::cache_service
